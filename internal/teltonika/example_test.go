package teltonika_test

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// One device's session as a server reads it. Deadlines and the device's side are left out.
func ExampleReader() {
	hello, _ := hex.DecodeString("000f333536333037303432343431303133")
	frame, _ := hex.DecodeString("000000000000002808010000016b40d9ad80010000000000000000000000000000000103021503010101425e100000010000f22a")
	conn := bytes.NewReader(append(hello, frame...))

	r := teltonika.NewReader(conn, teltonika.DefaultMaxBody)
	imei, err := r.IMEI()
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := r.Next()
	if err != nil {
		fmt.Println(err)
		return
	}
	var batch teltonika.Batch
	if err := batch.Decode(f.Body); err != nil {
		fmt.Println(err)
		return
	}
	for _, rec := range batch.Records {
		fmt.Printf("%s codec %v ts %d lat %s io %s\n", imei, batch.Codec, rec.Timestamp,
			teltonika.AppendDegrees(nil, rec.Latitude), rec.IO.AppendJSON(nil))
	}
	fmt.Printf("answer %x\n", teltonika.AppendAck(nil, len(batch.Records)))
	// Output:
	// 356307042441013 codec 8 ts 1560161136000 lat 0.0000000 io {"21":3,"1":1,"66":24080}
	// answer 00000001
}

// A command to a device, and the device's answer as a server reads it. There is nothing to
// acknowledge.
func ExampleDecodeMessages() {
	imei, err := teltonika.ParseIMEI("352093081452251") // as Reader.IMEI returned it
	if err != nil {
		fmt.Println(err)
		return
	}
	command, err := teltonika.AppendMessages(nil, teltonika.Codec14,
		teltonika.Message{Type: teltonika.TypeCommand, IMEI: imei, Text: []byte("getver")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("send %x\n", command)

	answer, _ := hex.DecodeString("00000000000000100e011100000008035209308145225101000032ac")
	f, err := teltonika.NewReader(bytes.NewReader(answer), teltonika.DefaultMaxBody).Next()
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := teltonika.DecodeMessages(f.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	for m := range messages.All() {
		fmt.Printf("codec %v type %02x from this device: %t, refused: %t, text %q\n",
			messages.Codec, m.Type, m.IMEI == imei, m.Type == teltonika.TypeNACK, m.Text)
	}
	// Output:
	// send 00000000000000160e01050000000e0352093081452251676574766572010000d2c1
	// codec 14 type 11 from this device: true, refused: true, text ""
}
