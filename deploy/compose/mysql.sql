-- A shop, and the user that freshet reads it as.
CREATE DATABASE shop;
CREATE TABLE shop.product (id INT PRIMARY KEY, category_id INT NOT NULL, price INT NOT NULL);
INSERT INTO shop.product VALUES (1, 1, 100), (2, 1, 200), (3, 2, 300);
CREATE USER freshet IDENTIFIED BY 'freshet';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO freshet;
GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO freshet; -- SELECT is enough for freshet; the rest is for you to play with
