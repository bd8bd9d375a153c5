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
	"testing"
	"time"
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
	server, err := c.Admin.TLS.Server()
	if err != nil {
		t.Fatal(err)
	}
	mutual, err := ServerTLS{Mode: TLSRequired, CertFile: cert, KeyFile: key, ClientCAFile: cert}.Server()
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
		client, err := c.Source.TLS.Client()
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
	client, err := c.Source.TLS.Client()
	server, err2 := c.Admin.TLS.Server()
	if client != nil || server != nil || err != nil || err2 != nil {
		t.Error(client, server, err, err2)
	}
}

// The files can change after the configuration was loaded.
func TestTLSSettingsNameTheFileThatIsWrong(t *testing.T) {
	cert, key := authority(t)
	for want, settings := range map[string]func() (*tls.Config, error){
		"ca_file /nowhere: no such file or directory":   TLS{Mode: TLSVerify, CAFile: "/nowhere"}.Client,
		"ca_file " + key + ": no certificate in it":     TLS{Mode: TLSVerify, CAFile: key}.Client,
		"cert_file /nowhere: no such file or directory": TLS{Mode: TLSVerify, CertFile: "/nowhere", KeyFile: key}.Client,
		"key_file /nowhere: no such file or directory": ServerTLS{
			Mode: TLSRequired, CertFile: cert,
			KeyFile: "/nowhere",
		}.Server,
		"client_ca_file " + key + ": no certificate in it": ServerTLS{
			Mode: TLSRequired, CertFile: cert, KeyFile: key,
			ClientCAFile: key,
		}.Server,
		"tls: failed to find certificate PEM data in certif": ServerTLS{
			Mode: TLSRequired, CertFile: key,
			KeyFile: cert,
		}.Server,
	} {
		if c, err := settings(); c != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
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
