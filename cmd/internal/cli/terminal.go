package cli

import (
	"io"
	"os"
)

// IsTerminal reports whether a line of w can be overwritten.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
