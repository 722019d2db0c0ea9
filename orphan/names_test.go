package orphan

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// javaText is how Java serialises a text of 36 characters.
const javaText = `\xac\xed\x00\x05t\x00$`

const javaRules = `
- name: index
  members: {set: "index:{principal}", as: '\xac\xed\x00\x05t\x00${session}'}
  only: {session: uuid}
  keep_if: [{exists: "sessions:{session}"}]
  bin: 1h
- name: carts
  keys: '\xac\xed\x00\x05t\x00.cart:{session}'
  only: {session: uuid}
  keep_if: [{member: {set: '\xffall', of: '\xac\xed\x00\x05t\x00${session}'}}]
  related: ['notes\xff:{session}']
  bin: 1h
`

// Names need not be text. In marks, plans and the log their bytes are spelled.
func TestNamesThatAreNotText(t *testing.T) {
	t.Parallel()
	namesThatAreNotText(alone(t, javaRules))
}

func TestNamesThatAreNotTextOnACluster(t *testing.T) {
	t.Parallel()
	namesThatAreNotText(onCluster(t, redistest.StartCluster(t, 3, 0), javaRules))
}

func namesThatAreNotText(r *rig) {
	const cart, spelled = `\xac\xed\x00\x05t\x00.cart:`, `\xac\xed\x00\x05t\x00`
	ids := strings.NewReplacer("LIVE", "11111111-2222-4333-8444-555555555555", "DEAD", "99999999-2222-4333-8444-555555555555",
		"JAVA", javaText, "CART", cart)
	raw := rules.Unspell
	escaped := strings.ReplaceAll(spelled, `\x`, `\x5cx`) // names that look like bytes that are spelled
	r.run(ids.Replace(`SET sessions:LIVE 1
		SADD index:ann JAVALIVE JAVADEAD LIVE ` + escaped + `$DEAD
		SADD index:bob JAVALIVE JAVADEAD LIVE ` + escaped + `$DEAD
		SADD \xffall JAVALIVE
		SET CARTLIVE figs
		SET CARTDEAD figs
		SET notes\xff:LIVE gift
		SET notes\xff:DEAD gift
		SET ` + escaped + `.cart:DEAD somebody-else's`))
	r.swept("index", "2 alive, 4 foreign, 2 waiting")
	r.found("carts", "1 alive, 1 waiting")

	plans, err := r.set.Plan(r.Context(), 10)
	require.NoError(r, err)
	found := plans[0].Findings
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Name, b.Name) })
	require.Equal(r, ids.Replace("index:ann JAVADEAD"), found[0].Name)
	require.False(r, found[0].Since.IsZero())
	require.Equal(r, ids.Replace("CARTDEAD"), plans[1].Findings[0].Name)
	why, err := r.set.Explain(r.Context(), ids.Replace("index:bob JAVALIVE"))
	require.NoError(r, err)
	require.Equal(r, alive, why[0].Verdict)

	r.pass("index", rules.DefaultGrace)
	r.pass("carts", rules.DefaultGrace)
	require.Equal(r, 2, r.sweep("index").Removed, "%+v %+v", r.result("index"), r.result("carts"))
	require.Equal(r, 1, r.result("carts").Removed)
	r.rounds(2, rules.DefaultGrace)
	r.there(ids.Replace(`index:ann/JAVALIVE index:ann/LIVE index:bob/JAVALIVE CARTLIVE notes\xff:LIVE ` + escaped + `.cart:DEAD`))
	r.gone(ids.Replace(`index:ann/JAVADEAD index:bob/JAVADEAD CARTDEAD notes\xff:DEAD`))

	bins := Bins{Client: r.rdb, Layout: r.layout}
	all, err := bins.List(r.Context(), "")
	require.NoError(r, err)
	require.Len(r, all, 4)
	for _, b := range all {
		back, err := bins.Restore(r.Context(), b.ID)
		require.NoError(r, err)
		require.Equal(r, Back, back[0].Fate, "%+v", back)
		require.True(r, !strings.Contains(b.Name+b.Key+b.Member, "\xac"), b)
	}
	r.there(ids.Replace("index:ann/JAVADEAD"))
	require.Equal(r, "figs", r.rdb.Get(r.Context(), raw(ids.Replace("CARTDEAD"))).Val())
	require.Equal(r, "gift", r.rdb.Get(r.Context(), raw(ids.Replace(`notes\xff:DEAD`))).Val())
}
