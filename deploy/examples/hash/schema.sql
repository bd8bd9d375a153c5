DROP DATABASE IF EXISTS example;
CREATE DATABASE example CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS freshet@'%' IDENTIFIED BY 'freshet';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO freshet@'%';
GRANT SELECT ON example.* TO freshet@'%';
USE example;

CREATE TABLE profile (
  user_id INT PRIMARY KEY,
  city VARCHAR(40) NOT NULL
);
CREATE TABLE setting (
  user_id INT NOT NULL,
  name VARCHAR(20) NOT NULL,
  value VARCHAR(80) NOT NULL,
  PRIMARY KEY (user_id, name)
);
INSERT INTO profile VALUES (1, 'Paris');
INSERT INTO setting VALUES (1, 'theme', 'dark');
