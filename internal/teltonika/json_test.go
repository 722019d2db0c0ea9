package teltonika

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDegreesHaveSevenDecimalsAndNoRounding(t *testing.T) {
	t.Parallel()
	for e7, want := range map[int32]string{
		0: "0.0000000", 1: "0.0000001", -1: "-0.0000001", 252797000: "25.2797000", -9999999: "-0.9999999", 10000000: "1.0000000",
		-1800000000: "-180.0000000", math.MaxInt32: "214.7483647", math.MinInt32: "-214.7483648",
	} {
		require.Equal(t, want, string(AppendDegrees(nil, e7)))
	}
	rnd := rand.New(rand.NewPCG(4, 4))
	for range 10_000 {
		e7 := int32(rnd.Uint32())
		exact := big.NewRat(int64(e7), 1e7).FloatString(7)
		require.Equal(t, "lat="+exact, string(AppendDegrees([]byte("lat="), e7)))
	}
}

func TestElementsAsJSON(t *testing.T) {
	t.Parallel()
	hexed := []Element{{ID: 10, Bytes: []byte{0xAB, 0x0C}}, {ID: 9, Bytes: nil}, {ID: 11, Size: 16, Bytes: make([]byte, 16)}}
	numbers := []Element{
		{ID: 66, Size: 2, Value: 24079}, {ID: 21, Size: 1, Value: 3}, {ID: 239, Size: 1}, {ID: 16, Size: 4}, {ID: 78, Size: 8},
	}
	for _, c := range []struct {
		sentence   string
		elements   []Element
		io, widths string
	}{
		{"no elements are an empty object", nil, `{}`, `{}`},
		{"values are integers in the order of the wire", append(numbers, hexed...),
			`{"21":3,"239":0,"66":24079,"16":0,"78":0,"11":"00000000000000000000000000000000","10":"ab0c","9":""}`,
			`{"1":[21,239],"2":[66],"4":[16],"8":[78]}`},
		{"hex says its width itself", hexed[:1], `{"10":"ab0c"}`, `{}`},
		{"2^53 - 1 is the last number", []Element{{ID: 1, Size: 8, Value: 1<<53 - 1}}, `{"1":9007199254740991}`, `{"8":[1]}`},
		{"2^53 is the first string", []Element{{ID: 1, Size: 8, Value: 1 << 53}}, `{"1":"9007199254740992"}`, `{"8":[1]}`},
		{"the largest value is a string", []Element{{ID: 1, Size: 8, Value: math.MaxUint64}}, `{"1":"18446744073709551615"}`, `{"8":[1]}`},
		{"the first of two with one id stands", []Element{{ID: 5, Size: 1, Value: 1}, {ID: 5, Size: 2, Value: 3}, {ID: 6, Size: 2}},
			`{"5":1,"6":0}`, `{"1":[5],"2":[6]}`},
	} {
		elements := NewElements(c.elements...)
		require.Equal(t, "io="+c.io, string(elements.AppendJSON([]byte("io="))), c.sentence)
		require.Equal(t, "widths="+c.widths, string(elements.AppendWidths([]byte("widths="))), c.sentence)
	}
}

func TestManyElementsReadAsFewDo(t *testing.T) {
	t.Parallel()
	// On both sides of the bound where the search for duplicates changes.
	for _, n := range []int{fewElements - 1, fewElements, fewElements + 1, 3000} {
		list := make([]Element, n)
		for i := range list {
			list[i] = Element{ID: uint16(i * 8 % 1000), Size: 4, Value: uint64(i)}
		}
		elements := NewElements(list...)
		out := elements.AppendJSON(nil)
		var got map[string]uint64
		require.NoError(t, json.Unmarshal(out, &got))
		want := map[string]uint64{}
		for _, e := range list {
			if _, twice := want[fmt.Sprint(e.ID)]; !twice {
				want[fmt.Sprint(e.ID)] = e.Value
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, len(want), countMembers(t, out), "an id came twice")
		var widths map[string][]int
		require.NoError(t, json.Unmarshal(elements.AppendWidths(nil), &widths))
		require.Len(t, widths, 1)
		require.Len(t, widths["4"], len(want))
	}
}

// countMembers returns the number of members of a JSON object, counting duplicates.
func countMembers(t testing.TB, object []byte) int {
	d := json.NewDecoder(bytes.NewReader(object))
	tokens := 0
	for d.More() || tokens == 0 {
		_, err := d.Token()
		require.NoError(t, err)
		tokens++
	}
	return (tokens - 1) / 2
}
