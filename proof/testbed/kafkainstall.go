package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	// kafkaJava is the oldest Java that a Kafka 4 broker runs on (KIP-1013).
	kafkaJava = 17
	// kafkaLogger is the version of the logger that Kafka 4 works with and does not bring.
	kafkaLogger = "1.7.36"
)

// javaPackages are tried in turn: no release of Debian and Ubuntu has all of them.
var javaPackages = []string{"openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless"}

// kafkaFlags are for a small broker that is soon up. Compiling less halves the start.
var kafkaFlags = []string{
	"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
	"-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr", // no word about an archive that does not fit
	"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
	"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
}

// kafka finds Kafka of a version: the distribution that KAFKA_HOME names if it is of that
// version, else the jars in the cache directory, where Maven brings them if need be. The
// program is Java with all its flags; a class and its arguments are to follow.
func (in *installer) kafka(ctx context.Context, version string) (*program, error) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(version) {
		return nil, fmt.Errorf("testbed: %q is not a version of Kafka, like 4.3.0", version)
	}
	libs, err := in.kafkaJars(ctx, version)
	if err != nil {
		return nil, err
	}
	java, err := in.java(ctx)
	if err != nil {
		return nil, err
	}
	argv := append([]string{java}, kafkaFlags...)
	return &program{
		name: "kafka", version: version, argv: append(argv, "-cp", filepath.Join(libs, "*")),
		initData: initKafka,
	}, nil
}

// kafkaJars returns the directory with the jars.
func (in *installer) kafkaJars(ctx context.Context, version string) (string, error) {
	if home := os.Getenv("KAFKA_HOME"); home != "" {
		libs := filepath.Join(home, "libs")
		if _, err := os.Stat(filepath.Join(libs, "kafka_2.13-"+version+".jar")); err == nil {
			return libs, nil
		}
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "kafka-"+version)
	present := func() bool { return isDir(dir) }
	if !present() { // Maven takes the install lock too
		if err := in.maven(ctx, version); err != nil {
			return "", err
		}
	}
	return dir, in.ensure(ctx, need{
		what:    "Kafka " + version + " (Maven, into " + dir + ")",
		present: present,
		can:     func() error { return nil },
		install: func(ctx context.Context) error { return mavenKafka(ctx, version, dir) },
	})
}

// maven finds or installs Maven. It needs Java as well.
func (in *installer) maven(ctx context.Context, version string) error {
	if _, err := in.java(ctx); err != nil {
		return err
	}
	present := func() bool { _, err := exec.LookPath("mvn"); return err == nil }
	return in.ensure(ctx, in.aptNeed("Maven", "maven", present, func(why error) error {
		return fmt.Errorf("testbed: Kafka %s is missing and cannot be installed (%w): put mvn on PATH, or set KAFKA_HOME "+
			"to where Kafka %s is unpacked, or set %s to the brokers of a cluster (enough for tests which can share one)",
			version, why, version, EnvKafka)
	}))
}

// kafkaPOM lists what a broker and the command-line tools need.
const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>freshet</groupId><artifactId>testbed</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>%[1]s</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>%[1]s</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>%[2]s</version></dependency>
  </dependencies>
</project>
`

// mavenKafka has Maven copy Kafka's jars into a directory.
func mavenKafka(ctx context.Context, version, dir string) error {
	work, err := os.MkdirTemp("", "freshet-maven-")
	if err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), fmt.Appendf(nil, kafkaPOM, version, kafkaLogger),
		0o644); err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory="+part)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testbed: mvn: %w\n%s", err, lastBytes(out, logTailBytes))
	}
	return os.Rename(part, dir)
}

// java finds a Java that is new enough, or installs one.
func (in *installer) java(ctx context.Context) (string, error) {
	present := func() bool { return findJava(ctx) != "" }
	err := in.ensure(ctx, need{
		what:    "Java (apt-get install " + javaPackages[0] + ")",
		present: present,
		can:     canInstall,
		install: func(ctx context.Context) error {
			var errs []error
			for _, p := range javaPackages {
				err := in.apt(ctx, p)
				if err == nil {
					return nil
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
		missing: func(why error) error {
			return fmt.Errorf("testbed: Java %d is missing, which Kafka needs, and cannot be installed (%w): put java on "+
				"PATH, or set JAVA_HOME, or set %s to the brokers of a cluster (enough for tests which can share one)",
				kafkaJava, why, EnvKafka)
		},
	})
	if err != nil {
		return "", err
	}
	if java := findJava(ctx); java != "" {
		return java, nil
	}
	return "", fmt.Errorf("testbed: the package %s brought no java", javaPackages[0])
}

// findJava returns the first Java that is new enough, of JAVA_HOME, PATH and the system; or "".
func findJava(ctx context.Context) string {
	candidates, _ := filepath.Glob("/usr/lib/jvm/*/bin/java")
	if path, err := exec.LookPath("java"); err == nil {
		candidates = append([]string{path}, candidates...)
	}
	if home := os.Getenv("JAVA_HOME"); home != "" {
		candidates = append([]string{filepath.Join(home, "bin", "java")}, candidates...)
	}
	for _, java := range candidates {
		out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
		if err == nil && javaMajor(string(out)) >= kafkaJava {
			return java
		}
	}
	return ""
}

// javaMajor reads the version out of what java -version says: 17.0.15, 21, 1.8.0_392.
func javaMajor(out string) int {
	_, version, _ := strings.Cut(out, `version "`)
	n, _ := strconv.Atoi(version[:len(version)-len(strings.TrimLeft(version, "0123456789"))])
	return n
}

// initKafka formats a data directory. Each copy gets a meta.properties of its own.
func initKafka(ctx context.Context, p *program, dir string) error {
	file := dir + ".properties"
	properties := "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n" +
		"listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\ncontroller.listener.names=CONTROLLER\n" +
		"log.dirs=" + dir + "\n"
	if err := os.WriteFile(file, []byte(properties), 0o644); err != nil {
		return fmt.Errorf("testbed: data template: %w", err)
	}
	defer os.Remove(file)
	argv := append([]string{}, p.argv...)
	return initialise(ctx, append(argv, "kafka.tools.StorageTool", "format", "-t", kafkaUUID(), "-c", file), nil)
}
