package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestWhatACommandEndsAs(t *testing.T) {
	t.Parallel()
	refuses := func(c sim.Command) []teltonika.Message {
		m, _ := teltonika.ParseIMEI(other)
		return []teltonika.Message{{Type: teltonika.TypeNACK, IMEI: m}}
	}
	accepts := func(sim.Command) []teltonika.Message {
		return []teltonika.Message{{Type: teltonika.TypeResponse, Text: []byte("done")}}
	}
	anothers := func(c sim.Command) []teltonika.Message {
		m, _ := teltonika.ParseIMEI(other)
		return []teltonika.Message{{Type: teltonika.TypeResponse, IMEI: m, Text: []byte("done")}}
	}
	moves := func(b *bench, _ *tracker) {
		require.NoError(b.t, b.rdb.HSet(b.t.Context(), b.layout.Registry(), imei, "b").Err())
	}
	late := func(b *bench, d *tracker) { // an answer to nothing that was asked
		answer := teltonika.Message{Type: teltonika.TypeResponse, Text: []byte("late")}
		require.NoError(b.t, d.SendRaw(b.t.Context(), teltonika.AppendMessages(nil, teltonika.Codec12, answer)))
		d.reports() // it was read
	}
	before := map[string]func(b *bench, d *tracker){
		"the registry names another": moves, "an earlier answer was late": late,
	}
	for name, row := range map[string]struct {
		imei   string
		device func(sim.Command) []teltonika.Message // nil: not there
		more   []string
		status Status
		text   string
		heard  int
	}{
		"the device says that it is another":           {imei, refuses, []string{"codec", "14"}, WrongDevice, "says that it is " + other, 1},
		"the answer is another device's":               {imei, anothers, []string{"codec", "14"}, WrongDevice, "says that it is " + other, 1},
		"the registry names another":                   {imei, mute, nil, NotConnected, "the registry names another instance: b", 0},
		"an earlier answer was late":                   {imei, accepts, nil, MaybeAnswered, "done", 1},
		"it expired before it was read":                {imei, mute, []string{"expires", in(-time.Second)}, Expired, "before it could be sent", 0},
		"the device is not here":                       {imei, nil, nil, NotConnected, "no socket", 0},
		"an IMEI that is none":                         {"35630704244101x", mute, nil, Invalid, "imei", 0},
		"a codec that carries no commands":             {imei, mute, []string{"codec", "8"}, Invalid, "codec", 0},
		"a time to expire that is none":                {imei, mute, []string{"expires", "tomorrow"}, Invalid, "expires", 0},
		"a time to expire in another unit":             {imei, mute, []string{"expires", in(0) + "000"}, Invalid, "expires", 0},
		"seconds, which is 1970":                       {imei, mute, []string{"expires", fmt.Sprint(time.Now().Add(time.Hour).Unix())}, Expired, "", 0},
		"no text":                                      {imei, mute, []string{"text", ""}, Invalid, "text", 0},
		"too long a text":                              {imei, mute, []string{"text", strings.Repeat("x", 1025)}, Invalid, "text", 0},
		"too long a text by far, and of another codec": {imei, mute, []string{"text", strings.Repeat("x", 1<<20), "codec", "14"}, Invalid, "text", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, redistest.Shared(t))
			a := b.instance("a")
			var d *tracker
			if row.device != nil {
				d = a.connects(imei)
				if f := before[name]; f != nil {
					f(b, d)
				}
				d.answers(row.device)
			}
			b.adds("a", "c1", row.imei, "getver", row.more...)
			got := b.awaits(1, "a")[0]
			require.Contains(t, got.Text, row.text)
			got.Text = ""
			require.Equal(t, Outcome{"c1", row.imei, "a", row.status, ""}, got)
			if d != nil {
				require.Len(t, d.heard(), row.heard)
			}
		})
	}
}

func TestUnusableEntriesDoNotBlockTheStream(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.gate("a")
	require.NoError(t, b.rdb.LPush(t.Context(), state(b.layout, "taken"), "no string").Err())
	for _, stream := range []string{Outbound(b.layout, "a"), Queue(b.layout)} {
		for _, values := range [][]any{
			{"nothing", ""}, {"id", "", "imei", imei, "text", "x"}, {"id", "two words", "imei", imei, "text", "x"},
			{"id", strings.Repeat("x", 129), "imei", imei, "text", strings.Repeat("x", 1<<20)},
			{"id", "\x00\xff", "imei", "\xff", "text", "\xff"}, {"id", "taken", "imei", imei, "text", "x"},
		} {
			require.NoError(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: values}).Err())
		}
	}
	d := a.connects(imei)
	d.obeys()
	b.adds("a", "c1", imei, "getver")
	a.reads()
	require.Equal(t, []Outcome{{"c1", imei, "a", Answered, "did getver"}}, b.awaits(1, "a"))
	b.await(func() bool { return a.counted("unusable") == 10 && a.counted("duplicate") == 2 })
}

func TestASocketThatEndsEndsItsCommand(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.instance("a")
	d := a.connects(imei)
	asked := make(chan struct{})
	d.answers(func(sim.Command) []teltonika.Message { close(asked); return nil })
	b.adds("a", "c1", imei, "written")
	b.adds("a", "c2", imei, "behind it")
	<-asked
	d.Close()
	got := b.awaits(2, "a")
	require.Equal(t, Timeout, got[0].Status)
	require.Contains(t, got[0].Text, "the socket ended; the device may have executed it")
	require.Equal(t, NotConnected, got[1].Status)
}

func TestANewLifeSendsWhatTheFormerHadNotSentAndAnswersForTheRest(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.gate("a")
	d := a.connects(imei)
	d.obeys()
	b.adds("a", "sent", imei, "sent")
	b.adds("a", "unsent", imei, "unsent")
	deleted := b.adds("a", "deleted", imei, "deleted")
	// The former life read all of them, marked one, and was killed.
	former := lone("a", b.layout, b.rdb)
	stream := Outbound(b.layout, "a")
	page, err := former.read(t.Context(), first)
	require.NoError(t, err)
	require.Len(t, page, 3)
	verdict, left, _, err := former.take(t.Context(), former.parse(former.stream, page[0]))
	require.NoError(t, err)
	require.Equal(t, verdictSend, verdict)
	require.Positive(t, left)
	require.NoError(t, b.rdb.XDel(t.Context(), stream, deleted).Err())
	b.adds("a", "new", imei, "new")

	a.reads()
	got := b.awaits(3, "a")
	require.Equal(t, Outcome{"sent", imei, "a", InstanceLost, "sent by a, which reported no outcome; the device may have executed it"}, got[0])
	require.Equal(t, Outcome{"unsent", imei, "a", Answered, "did unsent"}, got[1])
	require.Equal(t, Outcome{"new", imei, "a", Answered, "did new"}, got[2])
	require.Equal(t, []string{"unsent", "new"}, d.heard())
	b.await(func() bool {
		pending, err := b.rdb.XPending(t.Context(), stream, group).Result()
		return err == nil && pending.Count == 0
	})
	// If the former life is not dead after all, its outcomes are ignored.
	added, err := former.add(t.Context(), former.parse(former.stream, page[0]), Answered, "late")
	require.NoError(t, err)
	require.Equal(t, verdictGone, added)
	b.awaits(3, "a")
}

func TestAnAnswerThatNoDeviceDocumentsIsCut(t *testing.T) {
	t.Parallel()
	said := strings.Repeat("x", answerMost)
	require.Equal(t, said, cut([]byte(said)))
	require.Equal(t, said+" [cut: the answer has 1281 bytes]", cut([]byte(said+"y")))
}
