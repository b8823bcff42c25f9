package table

import (
	"bufio"
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/quota"
)

func bucketLines(t testing.TB) [][]byte {
	t.Helper()
	file, err := os.ReadFile("testdata/buckets.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	scanner := bufio.NewScanner(bytes.NewReader(file))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		lines = append(lines, bytes.Clone(scanner.Bytes()))
	}
	return lines
}

// sameImage compares an image with what the reference reads.
func sameImage(t testing.TB, d *Images, text []byte) (fast bool) {
	t.Helper()
	image, err := d.Decode(text)
	want, wantErr := decodeText(text)
	switch {
	case (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error():
		t.Errorf("%s: got %v, want %v", text, err, wantErr)
	case err == nil && (image.Key != want.Key || !reflect.DeepEqual(image.Bucket, want.Bucket)):
		t.Errorf("%s:\n got %+v\nwant %+v", text, image.Bucket, want.Bucket)
	case err == nil:
		if full, err := image.DecodeFull(); err != nil || !reflect.DeepEqual(full, want) {
			t.Errorf("%s: in full\n got %+v, %v\nwant %+v", text, full, err, want)
		}
	}
	return d.scan(text) != nil
}

// Every bucket that a real client wrote is scanned, and as the reference reads it.
func TestImagesAreAsTheReferenceReadsThem(t *testing.T) {
	d := NewImages()
	for _, line := range bucketLines(t) {
		if fast := sameImage(t, d, line); !fast {
			t.Errorf("left to the reference: %s", line)
		}
	}
}

// Whatever an item looks like, it is read as the reference reads it, by a decoder
// that has read others before.
func FuzzImagesAreAsTheReferenceReadsThem(f *testing.F) {
	for _, line := range bucketLines(f) {
		f.Add(line)
	}
	for _, text := range oddImages {
		f.Add([]byte(text))
	}
	for _, divided := range dividedImages {
		f.Add([]byte(divided.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := NewImages()
		for _, text := range [][]byte{[]byte(oddImages[0]), text, text} {
			sameImage(t, d, text)
		}
	})
}

// oddImages are items that a scan may trip over.
var oddImages = []string{
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"}`),
	image(`"b_x_tk":{"N":"5"}`),
	image(`"b_x_tk":{"S":"5"},"b_x_cp":{"N":"7"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"b_x_tk":{"N":"6"}`),
	image(`"b_x_tk":{"N":"1e3"},"b_x_cp":{"N":"7"}`),
	image(`"b_x_tk":{"N":"-0"},"b_x_cp":{"N":"+7"}`),
	image(`"b_x_tk":{"N":"9999999999999999999"},"b_x_cp":{"N":"7"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"-7"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"b_x_soft":{"BOOL":true}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"b_x_soft":{"BOOL":false},"bypass":{"BOOL":true},"disabled":{"BOOL":true}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"disabled":{"S":"true"},"bypass":{"N":"12"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"b_x_soft":{"S":"true"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"sched":{"S":"1h9-17s500"},"b_x_sched":{"S":"-"},"b_x_rsched":{"S":"1m0h0"},"b_x_ws":{"N":"-99999999999999999"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"sched":{"S":"1h9-17s500"},"sched_tz":{"S":"Mars/Olympus"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"sched":{"S":""},"b_x_rsched":{"S":"7nonsense"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"b_x_rsa":{"N":"3600"},"b_x_ws":{"N":"5"},"b_x_wa":{"N":"4"},"b_x_wtc":{"N":"3"},"b_x_gc":{"N":"0"}`),
	image(`"b_wcu_tk":{"N":"5"},"b_wcu_cp":{"N":"7"},"b_wcu_sched":{"S":"nonsense"},"sched":{"S":"nonsense"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"metadata":{"M":{"a":{"L":[{"N":"1"}]}}}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"name":{"S":"\u0041"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"name":{"S":"é"}`),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"name":{"NULL":true}`),
	strings.Replace(image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"}`), "#e#", "#\x80#", 1),
	image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"shard_count":{"N":"-3"},"vu":{"N":"0"},"rf":{"N":"-1"}`),
	image(`"b__tk":{"N":"5"},"b__cp":{"N":"7"},"b_a_b_tk":{"N":"1"},"b_a_b_cp":{"N":"1"},"b_tk":{"N":"1"},"b_":{"N":"1"}`),
	`{"PK":{"S":"n/BUCKET#e#r#x"},"SK":{"S":"#STATE"}}`, `{}`, `{"PK":{"S":"`, `{"PK":{"S":"a"}`, ``, `[]`, `{"PK":{"S":"a"}} `, `{"PK":{}}`, `{"PK":{"":""}}`,
	" " + image(`"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"}`), image("\n" + `"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"}`), image(`"b_x_tk" : {"N":"5"},"b_x_cp":{"N":"7"}`),
}

// dividedImages are items that say how their limit is divided, and what is read
// of that.
var dividedImages = []struct {
	text      string
	want      quota.Division
	replicate bool
	fast      bool // or left to the reference
}{
	{image(drip + `,"b_x_div":{"S":"replicated"}`), quota.Replicated, true, true},
	{image(`"b_x_div":{"S":"replicated"},` + drip), quota.Replicated, true, true},
	{image(drip + `,"b_x_rsched":{"S":"1m0h0"},"b_x_div":{"S":"replicated"}`), quota.Replicated, false, true},
	{image(drip + `,"b_x_rsa":{"N":"3600"},"b_x_div":{"S":"replicated"}`), quota.Replicated, false, true},
	{image(drip + `,"b_x_div":{"S":"gathered"}`), quota.Pooled, false, true},
	{image(drip + `,"b_x_div":{"S":"divided"}`), quota.Divided, false, true},
	{image(drip + `,"b_x_div":{"S":""}`), quota.Divided, false, true},
	{image(drip + `,"b_x_div":{"S":"Replicated"}`), "Replicated", false, true},
	{image(drip + `,"b_x_div":{"S":"by halves"}`), "by halves", false, true},
	{image(drip + `,"b_x_div":{"S":"by \"halves\""}`), `by "halves"`, false, false},
	{image(drip + `,"b_x_div":{"N":"1"}`), "not a string", false, false},
	{image(drip + `,"b_x_div":{"NULL":true}`), "not a string", false, false},
	{image(drip + `,"b_x_div":{"BOOL":true}`), "not a string", false, false},
	{image(drip + `,"b_x_div":{"M":{"S":{"S":"replicated"}}}`), "not a string", false, false},
	{image(drip + `,"b_y_div":{"S":"gathered"}`), quota.Divided, false, true},
}

// drip is a limit that drips, unless more is said of it.
const drip = `"b_x_tk":{"N":"5"},"b_x_cp":{"N":"7"},"b_x_ra":{"N":"0"},"b_x_rp":{"N":"60000"}`

func TestImagesOfDivisions(t *testing.T) {
	d := NewImages()
	for _, test := range dividedImages {
		if fast := sameImage(t, d, []byte(test.text)); fast != test.fast {
			t.Errorf("%s: read fast is %v, want %v", test.text, fast, test.fast)
		}
		image, err := d.Decode([]byte(test.text))
		if err != nil {
			t.Fatalf("%s: %v", test.text, err)
		}
		if x := image.Limit("x"); len(image.Limits) != 1 || x.Division != test.want || x.Replicates() != test.replicate {
			t.Errorf("%s: read as %+v, want %q", test.text, image.Limits, test.want)
		}
	}
}

// image is a bucket's item with its keys.
func image(rest string) string {
	return `{"PK":{"S":"n/BUCKET#e#r#0"},"SK":{"S":"#STATE"},` + rest + `}`
}

func BenchmarkImage(b *testing.B) {
	lines := bucketLines(b)
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		d := NewImages()
		for i := 0; b.Loop(); i++ {
			if _, err := d.Decode(lines[i%len(lines)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("reference", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := decodeText(lines[i%len(lines)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
