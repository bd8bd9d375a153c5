// Package spec is what a user wrote: a mapping, where in the file each of its texts stands, and what is wrong with any
// of it. Package config fills it from the YAML file, router compiles it; neither knows the other.
//
// Nothing here is checked: config sees to the form of the file, router to what patterns, templates, predicates and
// queries hold. Values are plain data. They may be read from any goroutine, and none is changed once the configuration
// is loaded.
package spec
