package config

import (
	"strconv"
	"strings"

	"github.com/freshet/freshet/config/spec"
)

// percentages are parts of a whole, from 0 to 1.
func percentages() kind[float64] {
	const between = "write one from 0% to 100%"
	return kind[float64]{
		name: "percentage, 0% to 100%",
		parse: func(s string) (float64, *fault) {
			n, unit, ok := measure(s)
			switch {
			case s == "":
				return 0, &fault{"is empty", between}
			case switchedOff(s) && n == 0:
				return 0, &fault{spec.Quote(s) + " does not switch it off", "write 0%"}
			case !ok:
				return 0, &fault{spec.Quote(s) + " is not a percentage", between}
			case n < 0:
				return 0, &fault{s + " is negative", between}
			case unit == "" && n < 1:
				return 0, &fault{s + " has no unit", "write " + formatPercentage(n) + " if a part of 1 is meant"}
			case unit == "":
				return 0, &fault{s + " has no unit", "write " + s + "%"}
			case unit != "%" || strings.ContainsAny(s, " +"):
				return 0, &fault{spec.Quote(s) + " is not a percentage", "write it as 10%"}
			case n > 100:
				return 0, &fault{s + " is out of range", between}
			}
			// The point is moved in the text: a division would make 0.33299999999999996 of 33.3%.
			part, err := strconv.ParseFloat(strings.TrimSuffix(s, "%")+"e-2", 64)
			if err != nil {
				return 0, &fault{spec.Quote(s) + " is not a percentage", between}
			}
			return part, nil
		},
		format: formatPercentage,
		bare:   true,
	}
}

// formatPercentage writes a part of 1 with as few digits as it takes to read it again.
func formatPercentage(part float64) string {
	whole, digits, _ := strings.Cut(strconv.FormatFloat(part, 'f', -1, 64), ".")
	digits += strings.Repeat("0", max(0, 2-len(digits)))
	percent := strings.TrimLeft(whole+digits[:2], "0")
	if percent == "" {
		percent = "0"
	}
	if digits[2:] != "" {
		percent += "." + digits[2:]
	}
	return percent + "%"
}
