package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
)

// urlFlag adds --url to a command that talks to a running freshet.
func (c *cli) urlFlag(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentFlags().StringVar(&c.url, "url", "",
		"the admin listener of a running freshet (default: admin.listen of the configuration)")
	return cmd
}

// client returns a client for the running freshet. With --url the configuration is only needed for its token.
func (c *cli) client() (*admin.Client, *config.Config, error) {
	if c.url != "" && c.file == "" {
		if _, none := config.Find(""); none != nil && os.Getenv("FRESHET_CONFIG") == "" {
			return admin.NewClient(c.url, os.Getenv("FRESHET_ADMIN_TOKEN"), nil), nil, nil
		}
	}
	cfg, err := c.load()
	if err != nil {
		return nil, nil, err
	}
	base, hc := c.url, &http.Client{}
	if base == "" {
		if cfg.Admin.Listen == "" {
			return nil, cfg, usageError{errors.New("admin.listen is none, so a running freshet cannot be asked: set it, or " +
				"give --url")}
		}
		if base, hc, err = address(cfg.Admin); err != nil {
			return nil, cfg, err
		}
	}
	return admin.NewClient(base, cfg.Admin.Token.Reveal(), hc), cfg, nil
}

// address returns where to reach the admin listener of a configuration from this machine.
func address(a config.Admin) (string, *http.Client, error) {
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil {
		return "", nil, fmt.Errorf("admin.listen %s: %w", a.Listen, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	at := net.JoinHostPort(host, port)
	if a.TLS.CertFile == "" {
		return "http://" + at, &http.Client{}, nil
	}
	pem, err := os.ReadFile(a.TLS.CertFile)
	if err != nil {
		return "", nil, fmt.Errorf("admin.tls.cert_file: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return "https://" + at, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}, nil
}

func (c *cli) statusCommand() *cobra.Command {
	var raw, hot bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how a running freshet is doing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := c.client()
			if err != nil {
				return err
			}
			if hot && raw {
				return c.printJSON(client.Hot(cmd.Context()))
			}
			if raw {
				return c.printJSON(client.Status(cmd.Context()))
			}
			var s app.Status
			b, err := client.Status(cmd.Context())
			if err == nil {
				err = decode(b, &s)
			}
			for i := range s.Doubts {
				s.Doubts[i].Message = withAnswer(s.Doubts[i].Message, s.Doubts[i].Answer)
			}
			if err == nil {
				err = s.Print(c.stdout)
			}
			if err != nil || !hot {
				return err
			}
			var h app.HotStatus
			if b, err = client.Hot(cmd.Context()); err == nil {
				err = decode(b, &h)
			}
			if err != nil {
				return err
			}
			return h.Print(c.stdout)
		},
	}
	cmd.Flags().BoolVar(&raw, "json", false, "print the status as JSON")
	cmd.Flags().BoolVar(&hot, "hot", false, "also the tables and keys that change most (with --json: only these)")
	return c.urlFlag(cmd)
}

// printJSON prints an answer as it is.
func (c *cli) printJSON(answer json.RawMessage, err error) error {
	if err == nil {
		_, err = fmt.Fprintln(c.stdout, strings.TrimSpace(string(answer)))
	}
	return err
}

func decode(answer json.RawMessage, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer is not a status: %w", err)
	}
	return nil
}

func (c *cli) tailCommand() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print invalidations of a running freshet as they pass",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := c.client()
			if err != nil {
				return err
			}
			return client.Tail(cmd.Context(), func(line []byte) error {
				if raw {
					_, err := fmt.Fprintf(c.stdout, "%s\n", line)
					return err
				}
				var e app.TailEvent
				if err := json.Unmarshal(line, &e); err != nil {
					return fmt.Errorf("the line %q is not an event: %w", line, err)
				}
				_, err := fmt.Fprintln(c.stdout, e)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "json", false, "print each event as a line of JSON")
	return c.urlFlag(cmd)
}

func (c *cli) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "dlq", Short: "List, show, replay and purge dead letters: keys that were given up"}
	cmd.AddCommand(c.dlqList(), c.dlqShow(),
		c.dlqChange("replay", "Try keys again now", "replayed", admin.Letters.Replay),
		c.dlqChange("purge", "Remove dead letters for good; their keys stay as they are in Redis", "purged",
			admin.Letters.Purge))
	return c.urlFlag(cmd)
}

// either asks the running freshet, or uses what is kept when none runs. open returns what uses it and closes it.
func (c *cli) either(running func(*admin.Client) error, open func(*config.Config) (func() error, error)) error {
	client, cfg, err := c.client()
	if cfg == nil && err != nil {
		return err
	}
	if client != nil {
		if err = running(client); !errors.Is(err, admin.ErrAway) || cfg == nil || c.url != "" {
			return err
		}
	}
	use, openErr := open(cfg)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	return use()
}

// letters calls do with the dead letters: those of the running freshet, or those in the store when none runs.
func (c *cli) letters(ctx context.Context, do func(admin.Letters) error) error {
	return c.either(func(l *admin.Client) error { return do(l) }, func(cfg *config.Config) (func() error, error) {
		store, err := operate.OpenLetters(ctx, cfg)
		return func() error { return errors.Join(do(store), store.Close()) }, err
	})
}

func (c *cli) dlqList() *cobra.Command {
	var table string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, the oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.letters(cmd.Context(), func(l admin.Letters) error {
				w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tTABLE\tKEY\tACTION\tATTEMPTS\tLAST\tERROR")
				after, shown := uint64(0), 0
				for shown < limit {
					page, err := l.List(cmd.Context(), table, after, min(limit-shown, 1000))
					if err != nil {
						return err
					}
					if len(page) == 0 {
						break
					}
					for _, d := range page {
						fmt.Fprintf(w, "%d\t%s\t%q\t%s\t%d\t%s\t%s\n", d.ID, d.Table, d.Key, d.Action, d.Attempts,
							d.Last.Format(time.RFC3339), oneLine(d.Error))
						after = d.ID
					}
					shown += len(page)
				}
				if err := w.Flush(); err != nil || shown < limit {
					return err
				}
				more, err := l.List(cmd.Context(), table, after, 1)
				if len(more) > 0 {
					fmt.Fprintf(c.stderr, "there are more than these %d: raise --limit to see them\n", shown)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&table, "table", "", "only those of one table (schema.table)")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many")
	return cmd
}

func (c *cli) dlqShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show everything that is known about one dead letter",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := letterIDs(args)
			if err != nil {
				return err
			}
			return c.letters(cmd.Context(), func(l admin.Letters) error {
				page, err := l.List(cmd.Context(), "", ids[0]-1, 1)
				if err != nil {
					return err
				}
				if len(page) == 0 || page[0].ID != ids[0] {
					return fmt.Errorf("there is no dead letter %d; `freshet dlq list` shows them", ids[0])
				}
				return printIndented(c.stdout, page[0])
			})
		},
	}
}

func (c *cli) dlqChange(verb, short, done string,
	change func(admin.Letters, context.Context, admin.Selection) (int, error),
) *cobra.Command {
	var sel admin.Selection
	cmd := &cobra.Command{
		Use:   verb + " [ID ...]",
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if sel.IDs, err = letterIDs(args); err != nil {
				return err
			}
			if err := sel.Validate(); err != nil {
				return usageError{fmt.Errorf("%w (--all)", err)}
			}
			return c.letters(cmd.Context(), func(l admin.Letters) error {
				n, err := change(l, cmd.Context(), sel)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.stdout, "%s %d dead letters\n", done, n)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&sel.All, "all", false, "all of them")
	cmd.Flags().StringVar(&sel.Table, "table", "", "with --all: only those of one table (schema.table)")
	return cmd
}

func letterIDs(args []string) ([]uint64, error) {
	var ids []uint64
	for _, a := range args {
		id, err := strconv.ParseUint(a, 10, 64)
		if err != nil || id == 0 {
			return nil, usageError{fmt.Errorf("%q is not the id of a dead letter: want a whole number above 0", a)}
		}
		ids = append(ids, id)
	}
	return ids, nil
}
