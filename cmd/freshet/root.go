package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
)

// cli is what the commands share.
type cli struct {
	stdout, stderr io.Writer
	file           string // --config
	url            string // --url
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	c := &cli{stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:   "freshet",
		Short: "Keep Redis caches fresh from the MySQL or MariaDB binlog",
		Long: `freshet reads the MySQL or MariaDB binlog, turns every committed row change into the Redis keys that it makes
stale, and deletes those keys, so that cache and database become consistent again after every failure.

Results go to stdout, logs to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration,
3 the position in the binlog is lost, or records that Kafka should hold (do not restart: act first),
4 what --wait waited for was dismissed before it was answered, or cancelled before it was done.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())}
	})
	root.PersistentFlags().StringVarP(&c.file, "config", "c", "",
		"configuration file (default: $FRESHET_CONFIG, ./freshet.yaml, /etc/freshet/freshet.yaml)")
	root.AddCommand(
		c.runCommand(), c.readerCommand(), c.invalidatorCommand(), c.validateCommand(), c.checkCommand(), c.explainCommand(),
		c.tailCommand(), c.statusCommand(),
		c.positionCommand(), c.dlqCommand(), c.doubtsCommand(), c.invalidateCommand(), c.redoCommand(), c.warmCommand(),
		c.configCommand(),
		c.versionCommand(),
	)
	// cobra adds these two when it runs; here they are treated like all others.
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	asUsage(root)
	return root
}

// helpCommand is cobra's, except that it refuses a topic that it does not know.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usageError{fmt.Errorf("there is no command %q; see `freshet --help`", strings.Join(args, " "))}
			}
			cmd.InitDefaultHelpFlag() // else the help leaves it out
			return cmd.Help()
		},
	}
}

// asUsage makes every complaint about arguments a usage error, and a command group without a command as well.
func asUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())}
			}
			return nil
		}
	}
	if cmd.HasSubCommands() && cmd.Run == nil && cmd.RunE == nil {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usageError{fmt.Errorf("unknown command %q for %q; see `%s --help`", args[0], cmd.CommandPath(),
				cmd.CommandPath())}
		}
	}
	for _, sub := range cmd.Commands() {
		asUsage(sub)
	}
}

// load finds and reads the configuration, and checks the mappings in it.
func (c *cli) load() (*config.Config, error) {
	file, err := config.Find(c.file)
	if err != nil {
		return nil, err
	}
	return config.Load(file, operate.CheckMappings)
}

// logger writes to stderr, as log.level and log.format say.
func (c *cli) logger(l config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level, ReplaceAttr: readable}
	if l.Format == config.LogText || l.Format == config.LogAuto && terminal(c.stderr) {
		return slog.New(slog.NewTextHandler(c.stderr, o))
	}
	return slog.New(slog.NewJSONHandler(c.stderr, o))
}

// readable writes durations with their unit in every format: as JSON they would be bare nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().Round(time.Millisecond).String())
	}
	return a
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// version is set by the linker for releases.
var version = "dev"

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			revision := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = " " + s.Value
					}
				}
			}
			_, err := fmt.Fprintf(c.stdout, "freshet %s%s %s %s/%s\n", version, revision, runtime.Version(), runtime.GOOS,
				runtime.GOARCH)
			return err
		},
	}
}
