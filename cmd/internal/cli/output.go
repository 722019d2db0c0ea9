package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rollcall-redis/rollcall/internal/printable"
)

// Columns escapes line breaks inside a cell.
func Columns(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable.Text(cell)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return t.Flush()
}
