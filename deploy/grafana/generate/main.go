// Command generate writes freshet.json.
package main

import (
	"fmt"
	"os"

	"github.com/freshet/freshet/deploy/grafana"
)

func main() {
	text, err := grafana.JSON()
	if err == nil {
		err = os.WriteFile("freshet.json", text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
