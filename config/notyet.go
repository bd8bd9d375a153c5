package config

import "slices"

// unbuilt are the lists that may have more than one item only in a later version. It is refused, never ignored. Who
// builds it deletes its line. What an action of a mapping lacks is refused where the action is read.
func unbuilt() []string { return []string{"source.addresses"} }

// refuseSettings reports the keys that ask for what is not built.
func (l *loader) refuseSettings() {
	single := unbuilt()
	for _, k := range l.keys {
		if slices.Contains(single, k.path) && len(k.get(l.config)) > 1 {
			l.Add(l.item(k.path, 1), k.path+": more than one is not supported yet", "leave one")
		}
	}
}
