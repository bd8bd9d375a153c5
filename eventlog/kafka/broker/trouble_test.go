package broker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTroubleLastsUntilTheBrokersAnswerOrSomebodyMendsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, Options{Brokers: []string{"127.0.0.1:1"}, Timeout: 10 * time.Second})
		note := func(class Class) { c.note(&Error{Class: class, What: "try", Err: errors.New("it failed")}) }
		wait := func(d time.Duration) { <-time.After(d) }
		check := func(when string, want bool) {
			t.Helper()
			if err := c.Trouble(); (err != nil) != want {
				t.Errorf("%s: %v", when, err)
			}
		}
		check("at the start", false)
		if c.Answered() {
			t.Error("nobody was asked, and somebody has answered")
		}
		for _, class := range []Class{Ended, Fenced, OutOfRange} {
			note(class)
			check(class.String(), false)
		}
		note(Transient)
		wait(time.Hour)
		check("nobody answers", true)
		c.lastError.hear()
		check("they answer again", false)
		note(Transient)
		wait(time.Second)
		c.lastError.hear()
		check("one answers, another does not", true)
		wait(2 * time.Second)
		check("no more errors", false)
		note(Denied)
		wait(11 * time.Second)
		c.lastError.hear()
		check("denied, and asked again in a while", true)
		wait(2 * time.Second)
		check("not denied any more", false)
		if !c.Answered() {
			t.Error("an answer is not known")
		}
	})
}
