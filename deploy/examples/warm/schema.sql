DROP DATABASE IF EXISTS example;
CREATE DATABASE example CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS freshet@'%' IDENTIFIED BY 'freshet';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO freshet@'%';
GRANT SELECT ON example.* TO freshet@'%';
USE example;

CREATE TABLE product (
  id INT PRIMARY KEY,
  name VARCHAR(40) NOT NULL,
  price DECIMAL(10,2) NOT NULL,
  in_stock INT NOT NULL,
  supplier VARCHAR(40)
);
INSERT INTO product VALUES (17, 'Lamp', 9.90, 4, 'Acme'), (18, 'Chair', 49.00, 2, NULL);
