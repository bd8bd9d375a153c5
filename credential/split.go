package credential

import (
	"fmt"
	"strings"
)

// Split returns the words of a command. They are separated by blanks; '…' is taken as it is, and in "…" a backslash
// stands before a quote or another backslash. No shell reads them, so characters that a shell would act upon are
// refused outside of quotes: nobody would notice otherwise that | is only an argument. The error is an [Error].
func Split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == ' ' || c == '\t' || c == '\n':
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		case c == '\'' || c == '"':
			inside, n, err := quoted(text[i:])
			if err != nil {
				return nil, err
			}
			word.WriteString(inside)
			begun = true
			i += n - 1
		case c == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
			begun = true
		case strings.IndexByte("|&;<>$`\\", c) >= 0:
			return nil, &Error{
				What: fmt.Sprintf("no shell reads it, so %c would be an argument", c), Do: "put it in quotes, or write sh -c '…'",
			}
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, &Error{What: "it names no program", Do: "write the program and its arguments"}
	}
	return words, nil
}

// quoted returns what is in the quotes that text begins with, and the length of it with them.
func quoted(text string) (inside string, n int, err error) {
	var b strings.Builder
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			return b.String(), i + 1, nil
		case c == '\\' && quote == '"' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, &Error{What: fmt.Sprintf("a quote %c has no end", quote), Do: "close it, or write a backslash before it"}
}
