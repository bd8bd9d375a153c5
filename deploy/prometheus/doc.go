// Package prometheus holds freshet's recording and alert rules, and a configuration that scrapes it.
package prometheus

import _ "embed"

// Rules is the file of recording and alert rules.
//
//go:embed freshet.rules.yaml
var Rules []byte
