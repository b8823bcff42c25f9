package table

import "testing"

func TestMapText(t *testing.T) {
	item, err := ParseItem([]byte(`{"s":{"S":"a"},"ss":{"SS":["a","b"]},"b":{"B":"YQ=="},"bs":{"BS":["YQ=="]},"n":{"N":"1"},` +
		`"l":{"L":[{"S":"a"},{"N":"1"}]},"m":{"M":{"a":{"S":"b"}}},"t":{"BOOL":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range item {
		item[name] = MapText(value, func(text string) string { return text + "!" })
	}
	got, err := FormatItem(item)
	want := `{"b":{"B":"YSE="},"bs":{"BS":["YSE="]},"l":{"L":[{"S":"a!"},{"N":"1"}]},"m":{"M":{"a!":{"S":"b!"}}},"n":{"N":"1"},` +
		`"s":{"S":"a!"},"ss":{"SS":["a!","b!"]},"t":{"BOOL":true}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	for name, want := range map[string]bool{"s": true, "ss": true, "b": false, "n": false, "t": false, "none": false} {
		if item.IsText(name) != want {
			t.Errorf("%s is text: %t", name, !want)
		}
	}
}
