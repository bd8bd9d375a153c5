package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshet/freshet/credential"
)

// authority writes a certificate that signs itself, for db.example, and its key.
func authority(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "db.example"}, DNSNames: []string{"db.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// handshake reports how a client and a server with these settings get on.
func handshake(t *testing.T, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		b, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		s := tls.Server(b, server)
		if err = s.Handshake(); err == nil {
			_, err = s.Write([]byte("x"))
		}
		done <- errors.Join(err, b.Close(), l.Close())
	}()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(a, client)
	clientErr = c.Handshake()
	if clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
	}
	return errors.Join(clientErr, a.Close()), <-done
}

func TestTLSSettingsProtectAsFarAsTheirModeSays(t *testing.T) {
	cert, key := authority(t)
	other, _ := authority(t)
	c := mustParse(t, minimal+"admin: {tls: {mode: required, cert_file: "+cert+", key_file: "+key+"}}\n")
	server, err := c.Admin.TLS.Server("admin.tls", ignore)
	if err != nil {
		t.Fatal(err)
	}
	asking := ServerTLS{Mode: TLSRequired, CertFile: cert, KeyFile: key, ClientCAFile: cert}
	mutual, err := asking.Server("admin.tls", ignore)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		settings string
		server   *tls.Config
		ok       bool
	}{
		"required, anybody":          {"{mode: required}", server, true},
		"preferred, anybody":         {"{mode: preferred}", server, true},
		"verify, trusted":            {"{mode: verify, server_name: db.example, ca_file: " + cert + "}", server, true},
		"verify, another name":       {"{mode: verify, server_name: other.example, ca_file: " + cert + "}", server, false},
		"verify, another authority":  {"{mode: verify, server_name: db.example, ca_file: " + other + "}", server, false},
		"verify, the system's":       {"{mode: verify, server_name: db.example}", server, false},
		"client shows a certificate": {"{mode: required, cert_file: " + cert + ", key_file: " + key + "}", mutual, true},
		"client shows none":          {"{mode: required}", mutual, false},
	} {
		c := mustParse(t, strings.Replace(minimal, "user: freshet", "user: freshet\n  tls: "+tc.settings, 1))
		client, err := c.Source.TLS.Client("source.tls")()
		if err != nil {
			t.Fatal(name, err)
		}
		clientErr, serverErr := handshake(t, client, tc.server)
		if ok := clientErr == nil && serverErr == nil; ok != tc.ok {
			t.Errorf("%s: client %v, server %v", name, clientErr, serverErr)
		}
	}
}

func TestDisabledTLSHasNoSettings(t *testing.T) {
	c := mustParse(t, minimal)
	server, err := c.Admin.TLS.Server("admin.tls", ignore)
	if c.Source.TLS.Client("source.tls") != nil || server != nil || err != nil {
		t.Error(server, err)
	}
}

// The files can change after the configuration was loaded.
func TestTLSSettingsNameTheFileThatIsWrong(t *testing.T) {
	cert, key := authority(t)
	listen := func(cert, key, ca string) func() (*tls.Config, error) {
		return func() (*tls.Config, error) {
			return ServerTLS{Mode: TLSRequired, CertFile: cert, KeyFile: key, ClientCAFile: ca}.Server("tls", ignore)
		}
	}
	for want, settings := range map[string]func() (*tls.Config, error){
		"tls.ca_file: /nowhere: no such file or directory: write the right file": TLS{Mode: TLSVerify, CAFile: "/nowhere"}.Client("tls"),
		"tls.ca_file: " + key + ": no certificate in it":                         TLS{Mode: TLSVerify, CAFile: key}.Client("tls"),
		"tls.cert_file: /nowhere: no such file or directory": TLS{
			Mode: TLSVerify, CertFile: "/nowhere", KeyFile: key,
		}.Client("tls"),
		"tls.key_file: /nowhere: no such file or directory":                    listen(cert, "/nowhere", ""),
		"tls.client_ca_file: " + key + ": no certificate in it":                listen(cert, key, key),
		"tls.cert_file: " + key + ": tls: failed to find certificate PEM data": listen(key, cert, ""),
	} {
		c, err := settings()
		if c != nil || err == nil || !strings.HasPrefix(err.Error(), want) || !credential.IsUnread(err) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// copyFile writes what is in one file over another.
func copyFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What is exchanged on disk counts from the next connection on: the authority that a client trusts, the certificate
// that it shows, and those of a listener, which goes on with what it had while the new files do not fit together.
func TestCertificatesAreReadAgainAtEachConnection(t *testing.T) {
	first, firstKey := authority(t)
	second, secondKey := authority(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	server, err := ServerTLS{
		Mode: TLSRequired, CertFile: at("cert"), KeyFile: at("key"), ClientCAFile: at("clients"),
	}.Server("admin.tls", ignore)
	if server != nil || !credential.IsUnread(err) {
		t.Fatalf("before there are any files: %v", err)
	}
	for to, from := range map[string]string{
		"cert": first, "key": firstKey, "clients": first, "ca": first, "own": first, "own-key": firstKey,
	} {
		copyFile(t, at(to), from)
	}
	var said error
	if server, err = (ServerTLS{
		Mode: TLSRequired, CertFile: at("cert"), KeyFile: at("key"), ClientCAFile: at("clients"),
	}).Server("admin.tls", func(err error) { said = err }); err != nil {
		t.Fatal(err)
	}
	client := TLS{
		Mode: TLSVerify, CAFile: at("ca"), ServerName: "db.example", CertFile: at("own"), KeyFile: at("own-key"),
	}.Client("redis.tls")
	try := func(when string, want bool) {
		t.Helper()
		c, err := client()
		if err != nil {
			t.Fatal(when, err)
		}
		clientErr, serverErr := handshake(t, c, server)
		if ok := clientErr == nil && serverErr == nil; ok != want {
			t.Errorf("%s: client %v, server %v", when, clientErr, serverErr)
		}
	}
	try("at first", true)
	copyFile(t, at("cert"), second)
	try("with half of the listener's new pair", true)
	if !credential.IsUnread(said) || !strings.Contains(said.Error(), "admin.tls.cert_file: ") {
		t.Errorf("half of the listener's new pair: it says %v", said)
	}
	copyFile(t, at("key"), secondKey)
	try("with a new certificate of the listener", false)
	if said != nil {
		t.Errorf("the new pair: it says %v", said)
	}
	copyFile(t, at("ca"), second)
	try("with the new authority of the client", true)
	copyFile(t, at("clients"), second)
	try("with another authority of clients", false)
	copyFile(t, at("own"), second)
	if _, err := client(); !credential.IsUnread(err) || !strings.Contains(err.Error(), "redis.tls.cert_file: ") {
		t.Errorf("half of the client's new pair: %v", err)
	}
	copyFile(t, at("own-key"), secondKey)
	try("with the client's new pair", true)
}

func TestACertificateMustFitItsKey(t *testing.T) {
	cert, _ := authority(t)
	_, key := authority(t)
	_, err := Parse("freshet.yaml",
		[]byte(minimal+"admin: {tls: {mode: required, cert_file: "+cert+", key_file: "+key+"}}\n"))
	if err == nil || !strings.Contains(err.Error(), "freshet.yaml:9:42: admin.tls.cert_file: ") ||
		!strings.Contains(err.Error(), "private key does not match") {
		t.Error(err)
	}
}

// Of a pair the file is named that has to be written again.
func TestTheKeyIsNamedIfItIsNone(t *testing.T) {
	cert, key := authority(t)
	other := filepath.Join(t.TempDir(), "other")
	for _, content := range []string{
		"", "nonsense", "-----BEGIN PRIVATE KEY-----\nbm9uc2Vuc2U=\n-----END PRIVATE KEY-----\n",
	} {
		if err := os.WriteFile(other, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := certificate("admin.tls", cert, other)
		if err == nil || !strings.HasPrefix(err.Error(), "admin.tls.key_file: "+other+": ") {
			t.Errorf("%q as a key: %v", content, err)
		}
		_, err = certificate("admin.tls", other, key)
		if err == nil || !strings.HasPrefix(err.Error(), "admin.tls.cert_file: "+other+": ") {
			t.Errorf("%q as a certificate: %v", content, err)
		}
	}
	_, err := Parse("freshet.yaml",
		[]byte(minimal+"admin: {tls: {mode: required, cert_file: "+cert+", key_file: "+other+"}}\n"))
	if err == nil || !strings.Contains(err.Error(), ": admin.tls.key_file: \""+other+"\": ") {
		t.Errorf("in a configuration: %v", err)
	}
	_, err = certificate("admin.tls", cert, cert)
	if err == nil || !strings.Contains(err.Error(), "tls.key_file: "+cert) {
		t.Errorf("a certificate as a key: %v", err)
	}
	_, err = certificate("admin.tls", key, key)
	if err == nil || !strings.Contains(err.Error(), "tls.cert_file: "+key) {
		t.Errorf("a key as a certificate: %v", err)
	}
}

// Who may write the directory of the files must not be able to hang freshet, or to take its memory.
func TestAFileOfTLSThatIsNoPlainOneOrTooLargeIsAnError(t *testing.T) {
	cert, key := authority(t)
	dir := t.TempDir()
	fifo, huge := filepath.Join(dir, "fifo"), filepath.Join(dir, "huge")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 4<<40); err != nil { // takes no room
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo: "is not a regular file", "/dev/zero": "is not a regular file", dir: "is a directory",
		huge: "is larger than 16MiB",
	} {
		for changed, c := range map[string]TLS{
			"ca_file":   {Mode: TLSVerify, CAFile: path},
			"cert_file": {Mode: TLSVerify, CertFile: path, KeyFile: key},
			"key_file":  {Mode: TLSVerify, CertFile: cert, KeyFile: path},
		} {
			_, err := c.Client("source.tls")()
			if start := "source.tls." + changed + ": " + path + ": " + want; !credential.IsUnread(err) ||
				!strings.HasPrefix(err.Error(), start) {
				t.Errorf("%v, want %q", err, start)
			}
		}
		_, err := ServerTLS{Mode: TLSRequired, CertFile: cert, KeyFile: key, ClientCAFile: path}.Server("admin.tls", ignore)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// ignore is for listeners whose files nobody exchanges.
func ignore(error) {}
