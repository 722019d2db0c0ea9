package replies

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAReplyThatIsTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	const most = 1000
	big := strings.Repeat("x", 900)
	for text, fits := range map[string]bool{
		"+OK\r\n:1\r\n-ERR no\r\n_\r\n#t\r\n,1.5\r\n(123\r\n": true,
		"$900\r\n" + big + "\r\n":                             true,
		"$-1\r\n*-1\r\n$0\r\n\r\n*0\r\n":                      true,
		"$1001\r\n":                                           false, // before any of it has come
		"$9223372036854775807\r\n":                            false,
		"*2\r\n$900\r\n" + big + "\r\n$200\r\n":               false,
		"*100000\r\n":                                         false,
		"%100\r\n":                                            false,
		"=1001\r\n":                                           false,
		"+" + strings.Repeat("x", longestLine):                false,
		// Each reply by itself; what a string contains is no header.
		strings.Repeat("$900\r\n"+big+"\r\n", 20):                                        true,
		strings.Repeat("$8\r\n$99999\r\n\r\n", 200):                                      true,
		strings.Repeat("*2\r\n*1\r\n$1\r\na\r\n%1\r\n+k\r\n:1\r\n", 200):                 true,
		"*3\r\n*1\r\n$400\r\n" + big[:400] + "\r\n$500\r\n" + big[:500] + "\r\n$100\r\n": false,
		">2\r\n$1\r\na\r\n$1\r\nb\r\n|1\r\n+a\r\n+b\r\n$900\r\n" + big + "\r\n+OK\r\n":   true,
	} {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			r := replies{most: most}
			var err error
			for rest := []byte(text); len(rest) > 0 && err == nil; rest = rest[min(size, len(rest)):] {
				err = r.take(rest[:min(size, len(rest))])
			}
			require.Equal(t, !fits, errors.Is(err, ErrTooLarge), fmt.Sprintf("%.40q in parts of %d: %v", text, size, err))
			if fits {
				require.Zero(t, r.left)
				require.Zero(t, r.skip)
			}
		}
	}
}
