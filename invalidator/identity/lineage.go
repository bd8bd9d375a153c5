package identity

// lineage is what is known of a master, and of the data that it has.
type lineage struct {
	known
	// Slots are those whose data was the master's when all was last known to be well.
	Slots SlotSet `json:"slots"`
	// Gave are those that it had and another master has now. Old are those of which it may have old keys, though another
	// has them: since it came back with older data, or brought data of its own. Nobody reads these keys, unless it gets
	// the slot.
	Gave SlotSet `json:"gave,omitzero"`
	Old  SlotSet `json:"old,omitzero"`
	// Unasked are those of Slots that had gone when it was first seen after it was started again, with nothing. What it
	// was when it gave them away, it can say no more.
	Unasked SlotSet `json:"unasked,omitzero"`
}

// cameBack takes note of what a master has in slots that are not its own, if it is suspected of older data. It is was
// no more, and has the slots now.
func (l *lineage) cameBack(why string, was known, s seen, slots *SlotSet) {
	switch {
	case l.Run != was.Run && s.keys == 0:
		l.Old = SlotSet{}
	case why != "" && stranger(was, s.server, s.at):
		l.Old.fill()
		l.Old = l.Old.without(slots)
	case why != "":
		l.Old.add(&l.Gave)
	}
}

// give takes note of slots that another master has now.
func (l *lineage) give(slots SlotSet) {
	l.Slots, l.Unasked = l.Slots.without(&slots), l.Unasked.without(&slots)
	l.Gave.add(&slots)
}

// gain takes note of slots that were another's.
func (l *lineage) gain(slots SlotSet) {
	l.Slots.add(&slots)
	l.Gave, l.Old = l.Gave.without(&slots), l.Old.without(&slots)
}
