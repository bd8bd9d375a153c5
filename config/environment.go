package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/viper"

	"github.com/freshet/freshet/config/spec"
)

// effective returns the texts of every key: the environment's where it has them, else the file's, else the default.
// An empty variable counts as none, since that is what compose files and templates leave where nothing is set.
//
// Viper decides between the three and is shown texts only, so that it converts nothing. Its keys are the whole paths
// (the delimiter is one that no path has), and each variable is bound by name: AutomaticEnv would let FRESHET_LOG
// hide all keys below log.
func effective(keys []key, file map[string][]string) map[string][]string {
	v := viper.NewWithOptions(viper.KeyDelimiter("\x00"))
	settings := map[string]any{}
	for path, texts := range file {
		settings[path] = texts
	}
	for _, k := range keys {
		v.SetDefault(k.path, k.def)
		v.MustBindEnv(k.path, k.env())
	}
	if err := v.MergeConfigMap(settings); err != nil {
		panic(err) // it has no error to return for a map
	}
	all := map[string][]string{}
	for _, k := range keys {
		switch x := v.Get(k.path).(type) {
		case []string:
			all[k.path] = x
		case string: // from the environment
			all[k.path] = []string{x}
			if k.list {
				all[k.path] = splitList(x)
			}
		}
	}
	return all
}

// splitList splits a list in a variable at its commas.
func splitList(s string) []string {
	items := strings.Split(s, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// variable returns the position that stands for the key's variable, if it is set.
func variable(k key) (spec.Pos, bool) {
	return spec.Pos{File: "$" + k.env()}, os.Getenv(k.env()) != ""
}

// checkVariables reports variables that were meant for a key and are for none: those that begin with a section's
// name, and those that are nearly right. Other variables with the prefix are somebody else's.
func checkVariables(keys []key, environ []string, problems *spec.Collector) {
	known := map[string]bool{configVariable: true}
	var all []string
	sections := map[string]bool{}
	for _, k := range keys {
		known[k.env()] = true
		all = append(all, k.env())
		section, _, _ := strings.Cut(k.path, ".")
		sections["FRESHET_"+strings.ToUpper(section)] = true
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "FRESHET_") || value == "" || known[name] || fromKubernetes(name) {
			continue
		}
		at := spec.Pos{File: "$" + name}
		if strings.HasPrefix(name, "FRESHET_MAPPINGS") {
			problems.Add(at, "mappings cannot come from the environment", "write them into the file")
			continue
		}
		near := nearVariable(name, all)
		for section := range sections {
			if near == "" && (name == section || strings.HasPrefix(name, section+"_")) {
				problems.Add(at, "there is no such key", "unset it, or find the right name in docs/configuration.md")
			}
		}
		if near != "" {
			problems.Add(at, "there is no such key", fmt.Sprintf("did you mean %s?", near))
		}
	}
}

// nearVariable returns the variable that name is a slip of, or "".
func nearVariable(name string, all []string) string {
	best, least := "", 3
	for _, v := range all {
		if d := spec.Distance(name, v); d < least {
			best, least = v, d
		}
	}
	return best
}

// fromKubernetes reports whether Kubernetes makes such a variable for a service whose name begins with freshet.
// Source: Kubernetes documentation, "Service", section "Environment variables".
func fromKubernetes(name string) bool {
	return regexp.MustCompile(`^FRESHET(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`).MatchString(name)
}
