DROP DATABASE IF EXISTS example;
CREATE DATABASE example CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS freshet@'%' IDENTIFIED BY 'freshet';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO freshet@'%';
GRANT SELECT ON example.* TO freshet@'%';
USE example;

CREATE TABLE review (
  id INT PRIMARY KEY AUTO_INCREMENT,
  product_id INT NOT NULL,
  stars INT NOT NULL,
  text VARCHAR(200) NOT NULL,
  KEY (product_id, id)
);
INSERT INTO review (product_id, stars, text) VALUES (17, 4, 'good'), (17, 2, 'wobbles');
