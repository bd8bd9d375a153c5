DROP DATABASE IF EXISTS example;
CREATE DATABASE example CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS freshet@'%' IDENTIFIED BY 'freshet';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO freshet@'%';
GRANT SELECT ON example.* TO freshet@'%';
USE example;

CREATE TABLE tag_member (
  tag VARCHAR(20) NOT NULL,
  user_id INT NOT NULL,
  PRIMARY KEY (tag, user_id)
);
INSERT INTO tag_member VALUES ('red', 1), ('red', 2);
