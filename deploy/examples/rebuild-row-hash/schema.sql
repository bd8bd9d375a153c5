DROP DATABASE IF EXISTS example;
CREATE DATABASE example CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS freshet@'%' IDENTIFIED BY 'freshet';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO freshet@'%';
GRANT SELECT ON example.* TO freshet@'%';
USE example;

CREATE TABLE user (
  id INT PRIMARY KEY,
  user_name VARCHAR(40) NOT NULL,
  email VARCHAR(80),
  password_hash VARBINARY(60) NOT NULL
);
INSERT INTO user VALUES (1, 'ada', 'ada@example.com', 'x'), (2, 'bob', NULL, 'y');
