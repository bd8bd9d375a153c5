package testbed

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createacls"
	"github.com/segmentio/kafka-go/protocol/deleteacls"
	"github.com/segmentio/kafka-go/protocol/describeacls"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// scramIterations is the least that Kafka takes.
const scramIterations = 4096

// securitySettings are the lines of server.properties about who may connect and do what.
func (o KafkaOptions) securitySettings(files *TLSFiles) string {
	var f strings.Builder
	protocol := "PLAINTEXT"
	switch {
	case len(o.Users) > 0 && o.TLS:
		protocol = "SASL_SSL"
	case len(o.Users) > 0:
		protocol = "SASL_PLAINTEXT"
	case o.TLS:
		protocol = "SSL"
	}
	fmt.Fprintf(&f, "listener.security.protocol.map=CLIENT:%s,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT\n", protocol)
	if o.TLS {
		fmt.Fprintf(&f, "listener.name.client.ssl.keystore.type=PEM\nlistener.name.client.ssl.keystore.location=%s\n",
			files.broker)
		fmt.Fprintf(&f, "listener.name.client.ssl.truststore.type=PEM\nlistener.name.client.ssl.truststore.location=%s\n",
			files.CA)
	}
	if o.ClientCerts {
		f.WriteString("listener.name.client.ssl.client.auth=required\n")
	}
	if len(o.Users) > 0 {
		plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
		for _, user := range slices.Sorted(maps.Keys(o.Users)) {
			plain += " user_" + user + "=" + strconv.Quote(o.Users[user])
		}
		f.WriteString("listener.name.client.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n")
		// The file has its own use for backslashes.
		fmt.Fprintf(&f, "listener.name.client.plain.sasl.jaas.config=%s;\n", strings.ReplaceAll(plain, `\`, `\\`))
		for _, m := range []string{"256", "512"} {
			fmt.Fprintf(&f, "listener.name.client.scram-sha-%s.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n", m)
		}
	}
	if o.ACL {
		f.WriteString("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n")
		// Who comes by the internal listener is anonymous.
		f.WriteString("super.users=User:ANONYMOUS;User:admin\n")
	}
	return f.String()
}

// check says what cannot be had together.
func (o KafkaOptions) check() error {
	var errs []error
	if o.ACL && len(o.Users) == 0 && !o.ClientCerts {
		errs = append(errs, errors.New("testbed: KafkaOptions.ACL needs Users or ClientCerts: who does not log in is as "+
			"anonymous as the brokers, and may do all"))
	}
	if o.ClientCerts && !o.TLS {
		errs = append(errs, errors.New("testbed: KafkaOptions.ClientCerts needs TLS"))
	}
	for user := range o.Users {
		if notTopic.MatchString(user) || user == "" {
			errs = append(errs, fmt.Errorf("testbed: %q cannot be the name of a Kafka user: letters, digits, '.', '_' and '-'",
				user))
		}
	}
	return errors.Join(errs...)
}

// addUsers gives the users their SCRAM credentials, and returns when they can log in
// everywhere. A broker that starts later has them from the start.
func (c *KafkaCluster) addUsers(ctx context.Context, users map[string]string) error {
	if len(users) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(users))
	return c.request(ctx, func(ctx context.Context, k *kafka.Client) error {
		// A request may change a user once. SHA-512 last: its login is waited for.
		for _, m := range []struct {
			id   kafka.ScramMechanism
			hash func() hash.Hash
		}{{kafka.ScramMechanismSha256, sha256.New}, {kafka.ScramMechanismSha512, sha512.New}} {
			req := &kafka.AlterUserScramCredentialsRequest{}
			for _, user := range names {
				salt := []byte(rand.Text())
				key, err := pbkdf2.Key(m.hash, users[user], salt, scramIterations, m.hash().Size())
				if err != nil {
					return err
				}
				req.Upsertions = append(req.Upsertions, kafka.UserScramCredentialsUpsertion{
					Name: user, Mechanism: m.id, Iterations: scramIterations, Salt: salt, SaltedPassword: key,
				})
			}
			res, err := k.AlterUserScramCredentials(ctx, req)
			if err != nil {
				return fmt.Errorf("testbed: kafka users: %w", err)
			}
			for _, r := range res.Results {
				if r.Error != nil {
					return fmt.Errorf("testbed: kafka user %s: %w", r.User, r.Error)
				}
			}
		}
		return c.awaitLogin(ctx, names[0], users[names[0]]) // all came with one change
	})
}

// awaitLogin returns when the user can log in to all running brokers.
func (c *KafkaCluster) awaitLogin(ctx context.Context, user, password string) error {
	mechanism, err := scram.Mechanism(scram.SHA512, user, password)
	if err != nil {
		return fmt.Errorf("testbed: kafka user %s: %w", user, err)
	}
	d := kafka.Dialer{ClientID: "testbed", Timeout: kafkaAskTimeout, TLS: c.TLSConfig(), SASLMechanism: mechanism}
	for _, b := range c.running() {
		err := poll(ctx, func() error {
			conn, err := d.DialContext(ctx, "tcp", b.listen)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err != nil {
			return fmt.Errorf("testbed: kafka broker %d: log in as %s: %w", b.ID, user, err)
		}
	}
	return nil
}

// SetPassword makes or changes a user who logs in with SCRAM, and returns when all running
// brokers know. A user's password for PLAIN stays what it was.
func (c *KafkaCluster) SetPassword(t testing.TB, user, password string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kafkaTimeout)
	defer cancel()
	Must(t, c.addUsers(ctx, map[string]string{user: password}))
}

// TLSConfig is for clients of this cluster: it trusts the cluster's authority, and shows the
// client's certificate. It is nil without TLS.
func (c *KafkaCluster) TLSConfig() *tls.Config {
	if c.TLS == nil {
		return nil
	}
	return c.TLS.config.Clone()
}

// Allow lets a user do operations, named as in Kafka's documentation of authorization: read,
// write, create, describe, … The resource is topic:, group:, transactionalid: or
// cluster:kafka-cluster; a name that ends in * stands for all that begin so. It returns when
// all running brokers know.
func (c *KafkaCluster) Allow(t testing.TB, user, resource string, operations ...string) {
	t.Helper()
	acls := parseACLs(t, user, resource, operations)
	c.admin(t, "allow "+user+" "+resource, func(ctx context.Context, _ *kafka.Client) error {
		req := &createacls.Request{}
		for _, a := range acls {
			req.Creations = append(req.Creations, createacls.RequestACLs{
				ResourceType: int8(a.ResourceType), ResourceName: a.ResourceName, ResourcePatternType: int8(a.ResourcePatternType),
				Principal: a.Principal, Host: a.Host, Operation: int8(a.Operation), PermissionType: int8(a.PermissionType),
			})
		}
		m, err := kafkaAsk(ctx, c.bootstrap()[0], 1, req)
		if err != nil {
			return err
		}
		for _, r := range m.(*createacls.Response).Results {
			if r.ErrorCode != 0 {
				return kafka.Error(r.ErrorCode)
			}
		}
		return c.awaitACLs(ctx, acls, true)
	})
}

// Revoke takes back what Allow gave with the same arguments, and returns when all running
// brokers know.
func (c *KafkaCluster) Revoke(t testing.TB, user, resource string, operations ...string) {
	t.Helper()
	acls := parseACLs(t, user, resource, operations)
	c.admin(t, "revoke "+user+" "+resource, func(ctx context.Context, _ *kafka.Client) error {
		req := &deleteacls.Request{}
		for _, a := range acls {
			req.Filters = append(req.Filters, deleteacls.RequestFilter{
				ResourceTypeFilter: int8(a.ResourceType), ResourceNameFilter: a.ResourceName,
				ResourcePatternTypeFilter: int8(a.ResourcePatternType),
				PrincipalFilter:           a.Principal, HostFilter: a.Host, Operation: int8(a.Operation),
				PermissionType: int8(a.PermissionType),
			})
		}
		m, err := kafkaAsk(ctx, c.bootstrap()[0], 1, req)
		if err != nil {
			return err
		}
		for _, r := range m.(*deleteacls.Response).FilterResults {
			if r.ErrorCode != 0 {
				return kafka.Error(r.ErrorCode)
			}
		}
		return c.awaitACLs(ctx, acls, false)
	})
}

// parseACLs reads the arguments of Allow and Revoke.
func parseACLs(t testing.TB, user, resource string, operations []string) (acls []kafka.ACLEntry) {
	t.Helper()
	kind, name, _ := strings.Cut(resource, ":")
	a := kafka.ACLEntry{
		ResourceName: name, ResourcePatternType: kafka.PatternTypeLiteral, Principal: "User:" + user,
		Host: "*", PermissionType: kafka.ACLPermissionTypeAllow,
	}
	Must(t, a.ResourceType.UnmarshalText([]byte(kind)))
	if prefix, ok := strings.CutSuffix(name, "*"); ok && prefix != "" {
		a.ResourceName, a.ResourcePatternType = prefix, kafka.PatternTypePrefixed
	}
	for _, op := range operations {
		Must(t, a.Operation.UnmarshalText([]byte(op)))
		acls = append(acls, a)
	}
	return acls
}

// awaitACLs returns when all running brokers have all of the entries, or none.
func (c *KafkaCluster) awaitACLs(ctx context.Context, acls []kafka.ACLEntry, there bool) error {
	for _, b := range c.running() {
		for _, a := range acls {
			err := poll(ctx, func() error {
				m, err := kafkaAsk(ctx, b.internal, 1, &describeacls.Request{Filter: describeacls.ACLFilter{
					ResourceTypeFilter: int8(a.ResourceType), ResourceNameFilter: a.ResourceName,
					ResourcePatternTypeFilter: int8(a.ResourcePatternType),
					PrincipalFilter:           a.Principal, HostFilter: a.Host, Operation: int8(a.Operation),
					PermissionType: int8(a.PermissionType),
				}})
				if err != nil {
					return err
				}
				res := m.(*describeacls.Response)
				if res.ErrorCode != 0 {
					return kafka.Error(res.ErrorCode)
				}
				if len(res.Resources) > 0 != there {
					return errors.New("it does not know yet")
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("testbed: kafka broker %d: %w", b.ID, err)
			}
		}
	}
	return nil
}

// poll calls f every few milliseconds until it returns nil or ctx ends.
func poll(ctx context.Context, f func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last error: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}
