package config

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/freshet/freshet/credential"
)

// secretSources reads from where each secret comes whose *_file or *_command key is given. A secret with a *_command is
// one to log in with, and is read at each login, from a file as well; files must be there now, so that a slip is found
// at the start. Any other is read now.
func (l *loader) secretSources() {
	for _, k := range l.keys {
		if k.secret == nil {
			continue
		}
		file, command := k.path+"_file", k.path+"_command"
		isLogin := slices.ContainsFunc(l.keys, func(o key) bool { return o.path == command })
		var given []string
		for _, path := range []string{k.path, file, command} {
			if (path != command || isLogin) && l.given(path) {
				given = append(given, path)
			}
		}
		for _, path := range given[min(1, len(given)):] {
			l.fault(l.place(path), path,
				&fault{fmt.Sprintf("%s is given as well (%s)", given[0], l.place(given[0])), "keep one of them"})
		}
		switch {
		case len(given) != 1:
		case given[0] == file:
			l.secretFile(k, file, isLogin)
		case given[0] == command:
			l.secretCommand(k, command)
		}
	}
}

func (l *loader) secretFile(k key, path string, isLogin bool) {
	from := credential.File(path, l.text(path)[0])
	text, err := from.Read(context.Background())
	if err != nil {
		l.fault(l.place(path), path, &fault{asError(err).What, "name a file that holds the secret and nothing else"})
		return
	}
	if !isLogin {
		from = credential.Text(text)
	}
	*k.secret(l.config) = Secret{from}
}

func (l *loader) secretCommand(k key, path string) {
	words, err := credential.Split(l.text(path)[0])
	if err != nil {
		e := asError(err)
		l.fault(l.place(path), path, &fault{e.What, e.Do})
		return
	}
	*k.secret(l.config) = Secret{credential.Command(path, words)}
}

// asError returns the error of package credential that err is.
func asError(err error) *credential.Error {
	e := &credential.Error{}
	if !errors.As(err, &e) {
		e.What = err.Error()
	}
	return e
}
