package retry

// String names the class in what tests say.
func (c Class) String() string {
	return [...]string{"none", "away", "key", "memory", "refused", "lost", "fatal"}[c]
}
