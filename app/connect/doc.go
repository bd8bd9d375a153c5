// Package connect makes what a configuration names: how to reach the source, Redis and Kafka, and what runs the
// mappings' queries. It opens no connection by itself.
package connect
