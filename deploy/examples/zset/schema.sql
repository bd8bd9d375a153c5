DROP DATABASE IF EXISTS example;
CREATE DATABASE example CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS freshet@'%' IDENTIFIED BY 'freshet';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO freshet@'%';
GRANT SELECT ON example.* TO freshet@'%';
USE example;

CREATE TABLE score (
  game VARCHAR(20) NOT NULL,
  user_id INT NOT NULL,
  points INT NOT NULL,
  PRIMARY KEY (game, user_id)
);
INSERT INTO score VALUES ('chess', 1, 1200), ('chess', 2, 1500);
