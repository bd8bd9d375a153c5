// Package examples is the test of the examples: it types what their READMEs say, and looks whether the output is what
// they show.
//
// In a block that is marked console, a line that begins with "$ " is a command for the shell, and the lines after it
// are its output. A command that only asks is repeated until its output is the one that is shown, as a reader would
// press the arrow key; one that changes something runs once. A command that does not end by itself (freshet run,
// redis-cli SUBSCRIBE) has a terminal of its own, and a block that is marked text is what it writes from then on.
// "…" in an output stands for any text within a line, and at the very end for any further text.
package examples
