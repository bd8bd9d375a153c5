package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// secrets are what must never be printed.
var secrets = []string{`pass"word-s s=;`, "wrong-password", "admin-password"}

// A broker that demands TLS and a login, and knows ACLs. Each test has a user of its own, who may do nothing at first.
func TestAGuardedCluster(t *testing.T) {
	t.Parallel()
	kafka := testbed.Kafka(t, testbed.KafkaOptions{TLS: true, ACL: true, Users: map[string]string{
		"admin": secrets[2], "alice": secrets[0], "bob": secrets[0], "carol": secrets[0],
	}})
	for name, f := range map[string]func(*site, *testbed.KafkaCluster){
		"what is printed is all that it needs":         obeyed,
		"logins and encryption are distinguished":      toldApart,
		"a missing right is named until it is granted": namedUntilGranted,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
			s.extra = "retry: {park_delays: [10s]}" // one topic of parked keys is enough
			f(s, kafka)
		})
	}
}

// as is the site with a login, and an authority that it trusts.
func (s *site) as(authority, mechanism, user, password string) *site {
	c := *s
	c.kafka += fmt.Sprintf(`, tls: {mode: verify, ca_file: %q}, sasl: {mechanism: %s, username: %s, password: '%s'}`,
		authority, mechanism, user, password)
	return &c
}

// discreet fails the test if what was written holds a secret.
func discreet(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, secret := range secrets {
			if strings.Contains(text, secret) || strings.Contains(text, strings.ReplaceAll(secret, `"`, `\"`)) {
				t.Errorf("a password is told: %s", text)
			}
		}
	}
}

// commands are the calls of Kafka's tools that a text holds, but for those in lines of the log: an alarm may hold some,
// too.
var commands = regexp.MustCompile(`(?m)^[^{\n]*?(kafka-\w+)\.sh --bootstrap-server \S+ (?:--command-config client\.properties )?(.*?)(?:, or .*)?$`)

// obey does what the commands in a text say: Kafka's own tool creates topics. Of the rights, which come in dozens, the
// tool would take minutes.
func obey(t *testing.T, kafka *testbed.KafkaCluster, text string) {
	t.Helper()
	found := commands.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		t.Fatalf("no command in %s", text)
	}
	for _, c := range found {
		words := strings.Fields(c[2])
		if c[1] == "kafka-topics" {
			kafka.Tool(t, "org.apache.kafka.tools.TopicCommand", words...)
			continue
		}
		if words[0] != "--add" || words[1] != "--allow-principal" {
			t.Fatalf("what should be done by %q?", c[0])
		}
		user, resource := strings.TrimPrefix(words[2], "User:"), strings.TrimPrefix(words[len(words)-2], "--")
		var operations []string
		for i := 3; words[i] == "--operation"; i += 2 {
			operations = append(operations, words[i+1])
		}
		kafka.Allow(t, user, resource+":"+words[len(words)-1], operations...)
	}
}

// obeyed: a user who may do nothing, where freshet creates no topics, gets by what freshet prints to where all works.
func obeyed(s *site, kafka *testbed.KafkaCluster) {
	t := s.t
	s.kafka += ", create_topics: false"
	s = s.as(kafka.TLS.CA, "scram-sha-512", "alice", secrets[0])
	for _, role := range []string{"reader", "invalidator"} {
		p := s.part(role)
		p.refused(exitFailed, []string{"user alice may not even see", "add the ACLs:\n  kafka-acls.sh"}, role)
		rights := p.start("check")
		if code := rights.Wait(t, patience); code != exitFailed || !strings.Contains(rights.Stdout(), "may not Read group") {
			t.Fatalf("check: exit code %d", code)
		}
		obey(t, kafka, rights.Stdout())
		topics := p.start("check")
		if code := topics.Wait(t, patience); code != exitFailed ||
			!strings.Contains(topics.Stdout(), "does not exist, and eventlog.kafka.create_topics is false") {
			t.Fatalf("check without topics: exit code %d", code)
		}
		run := p.start(role)
		ends(t, run, exitFailed, "eventlog.kafka.create_topics is false, and these do not exist", "kafka-topics.sh")
		obey(t, kafka, run.Stderr())
		settings := p.ask("check")
		obey(t, kafka, settings) // that it cannot read the topics' settings is a warning
		if out := p.ask("check"); strings.Contains(out, "fail") ||
			strings.Count(out, "warn  kafka:") != strings.Count(out, "has one copy only") {
			t.Errorf("check: %s", out)
		}
		discreet(t, rights.Stdout(), topics.Stdout(), run.Stderr(), settings, p.ask("config"))
		p.caughtUp()
	}
	s.writeMany(1, 30)
	s.part("reader").caughtUp()
	if _, keys := s.part("invalidator").caughtUp(); keys < 30 {
		t.Errorf("keys=%d", keys)
	}
	s.nothingCached()
}

// toldApart: logins by each mechanism work, and each thing that can be wrong with them has its own sentence.
func toldApart(s *site, kafka *testbed.KafkaCluster) {
	t, ca := s.t, kafka.TLS.CA
	kafka.Allow(t, "bob", "topic:"+s.topic+"*", "all")
	kafka.Allow(t, "bob", "group:*", "all")
	s.as(ca, "plain", "bob", secrets[0]).part("reader").caughtUp()
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		right := s.as(ca, mechanism, "bob", secrets[0])
		s.writeMany(1, 10)
		if rows, _ := right.part("reader").caughtUp(); rows != 10 {
			t.Errorf("%s: rows=%d", mechanism, rows)
		}
		right.part("invalidator").caughtUp()
		s.nothingCached()
	}
	for name, c := range map[string]struct {
		s     *site
		words []string
	}{
		"a wrong password": {s.as(ca, "plain", "bob", secrets[1]), []string{
			"log in to broker " + kafka.Brokers()[0] + " as bob (PLAIN)", "eventlog.kafka.sasl.username and its password",
		}},
		"another wrong password": {
			s.as(ca, "scram-sha-256", "bob", secrets[1]),
			[]string{"as bob (SCRAM-SHA-256)", "eventlog.kafka.sasl.username and its password"},
		},
		"nobody's name": {s.as(ca, "scram-sha-512", "nobody", secrets[0]), []string{"as nobody (SCRAM-SHA-512)"}},
		"a wrong authority": {
			s.as(kafka.TLS.Cert, "plain", "bob", secrets[0]),
			[]string{"unknown authority", "eventlog.kafka.tls.ca_file"},
		},
		"no encryption": {s, []string{"the broker encrypts on this port", "eventlog.kafka.tls.mode"}},
	} {
		t.Run(name, func(t *testing.T) {
			for command, role := range map[string]string{
				"reader": "reader", "invalidator": "invalidator",
				"position show": "reader",
			} {
				p := c.s.part(role)
				p.t = t
				r := p.start(strings.Fields(command)...)
				ends(t, r, exitFailed, c.words...)
				discreet(t, r.Stderr())
			}
			p := c.s.part("invalidator")
			p.t = t
			check := p.start("check")
			if code := check.Wait(t, patience); code != exitFailed || !strings.Contains(check.Stdout(), "fail  kafka: ") ||
				!strings.Contains(check.Stdout(), c.words[0]) {
				t.Errorf("check: exit code %d, %s", code, check.Stdout())
			}
			discreet(t, check.Stdout(), check.Stderr())
		})
	}
}

// namedUntilGranted: each right that is missing is named, at the start or while freshet runs, and when it is granted
// freshet goes on.
func namedUntilGranted(s *site, kafka *testbed.KafkaCluster) {
	t := s.t
	s = s.as(kafka.TLS.CA, "plain", "carol", secrets[0])
	reader, invalidator := s.part("reader"), s.part("invalidator")
	topics := "topic:" + s.topic + "*"
	kafka.Allow(t, "carol", topics, "describe", "read", "write")
	for _, p := range []*site{reader, invalidator} {
		p.refused(exitFailed, []string{
			"user carol may not Create topic " + s.topic, "--operation Create --topic " + s.topic,
			"--create --topic " + s.topic,
		}, p.role)
		check := p.start("check")
		if code := check.Wait(t, patience); code != exitFailed ||
			!strings.Contains(check.Stdout(), "user carol may not Create topic "+s.topic) {
			t.Errorf("check: exit code %d, %s", code, check.Stdout())
		}
	}
	kafka.Allow(t, "carol", topics, "create", "delete")

	read, invalidate := reader.start("reader"), invalidator.start("invalidator")
	for p, group := range map[*site]string{reader: s.topic + ".reader.default", invalidator: s.group} {
		p.await("it names the group that it may not join", func(st *app.Status) bool {
			return st.State == app.Starting && strings.Contains(st.Sentence, "user carol may not Read group "+group) &&
				strings.Contains(st.Sentence, "kafka-acls.sh")
		})
		if code, body := p.get("/readyz"); code != 503 ||
			!strings.Contains(body, "[-] eventlog: kafka: join consumer group "+group) {
			t.Errorf("/readyz: %d %s", code, body)
		}
	}
	kafka.Allow(t, "carol", "group:*", "read")
	reader.awaitFresh()
	invalidator.awaitFresh()

	kafka.Revoke(t, "carol", topics, "write")
	s.writeMany(1, 30)
	reader.await("it names the topic that it may not write to", func(st *app.Status) bool {
		return st.State == app.Behind && strings.Contains(st.Sentence, "user carol may not Write topic "+s.topic)
	})
	kafka.Allow(t, "carol", topics, "write")
	reader.awaitFresh()
	testbed.Eventually(t, patience, "all is deleted", s.isEmpty)

	kafka.Revoke(t, "carol", "group:*", "read")
	invalidator.await("it names its group", func(st *app.Status) bool {
		return st.State == app.Behind && strings.Contains(st.Sentence, "user carol may not Read group "+s.group)
	})
	kafka.Allow(t, "carol", "group:*", "read")
	invalidator.awaitFresh()
	discreet(t, reader.ask("status"), invalidator.ask("status", "--json"))
	for _, r := range []*testbed.Running{read, invalidate} {
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
		discreet(t, r.Stderr())
	}
}
