// Package connect makes what a configuration names: how to reach the source, Redis and Kafka, and the mappings as the
// router takes them. It opens no connection by itself.
package connect
