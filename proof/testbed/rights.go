package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// MayRead makes the user freshet, with the rights on everything that docs/configuration.md asks for, and the right to
// read these tables ("shop.product", "shop.*"). Another call adds tables.
func (s *Server) MayRead(t testing.TB, tables ...string) (user, password string) {
	t.Helper()
	s.Exec(t, s.Grants(t, tables...)...)
	return "freshet", readersPassword
}

const readersPassword = "a secret"

// Grants are the statements of MayRead.
func (s *Server) Grants(t testing.TB, tables ...string) []string {
	t.Helper()
	statements := []string{
		"CREATE USER IF NOT EXISTS freshet@'%' IDENTIFIED BY '" + readersPassword + "'",
		"GRANT " + s.documentedRights(t) + " ON *.* TO freshet@'%'",
	}
	for _, table := range tables {
		statements = append(statements, "GRANT SELECT ON "+table+" TO freshet@'%'")
	}
	return statements
}

// documentedRights returns the rights on everything that docs/configuration.md asks for.
func (s *Server) documentedRights(t testing.TB) string {
	t.Helper()
	root, err := moduleRoot()
	Must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "configuration.md"))
	Must(t, err)
	_, section, _ := strings.Cut(string(page), "### Rights of the user")
	begin := map[Flavor]string{FlavorMySQL: "On MySQL:", FlavorMariaDB: "On MariaDB:"}
	_, section, _ = strings.Cut(section, begin[s.Flavor])
	_, section, found := strings.Cut(section, "GRANT ")
	rights, _, _ := strings.Cut(section, " ON *.*")
	if !found || !strings.Contains(rights, "REPLICATION SLAVE") {
		t.Fatalf("docs/configuration.md has no rights for %s: %q", s.Flavor, rights)
	}
	return rights
}
