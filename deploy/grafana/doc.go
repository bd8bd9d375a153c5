// Package grafana makes freshet's dashboard, freshet.json, which Grafana takes as it is: by import, or from a
// provisioned folder (see deploy/compose).
//
//	go generate ./grafana    in this module: writes it again
//
// What is on it is in rows.go, how it looks in dashboard.go.
package grafana

//go:generate go run ./generate
