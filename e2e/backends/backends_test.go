package main

import (
	"os"
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	tab := table{
		reasons: []reason{
			{name: "b", backends: []string{"oci/runc", "docker"}, came: "y", why: "it has its own"},
			{name: "c", backends: []string{"docker"}, came: "z", why: "not what it came to"},
			{name: "d", backends: []string{"oci/runc"}, why: "in another backend"},
		},
		columns: []column{
			{name: "native", came: map[string]string{"a": "x", "b": "x", "c": "x", "d": "x"}},
			{name: "docker", came: map[string]string{"a": "x", "b": "y", "c": "y"}},
		},
		cases: []string{"a", "b", "c", "d"},
	}
	var out strings.Builder
	if n := tab.print(&out); n != 2 {
		t.Errorf("print() = %d, want the two that differ and are not explained:\n%s", n, &out)
	}
	for _, want := range []string{"≈  b", "≠  c", "≠  d", "(none)", "≈ b in docker: it has its own", "4 cases in 2 backends: 3 differ, 2 of them"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

func TestRead(t *testing.T) {
	name, came, err := graded([]byte(`{"id":"i","verdict":"verified","result":{"outcome":{"kind":"exited","exit_code":0},"stdout":{"sha256":"0123456789"}}}`))
	if name != "i" || came != "verified exited 0 stdout 01234567" || err != nil {
		t.Errorf("graded() = %q, %q, %v", name, came, err)
	}
	name, came, err = graded([]byte(`{"id":"j","verdict":"uncheckable","result":null}`))
	if name != "j" || came != "uncheckable" || err != nil {
		t.Errorf("graded() = %q, %q, %v", name, came, err)
	}
	name, came, err = attacked([]byte(`{"name":"n","family":"f","standing":"held","detail":""}`))
	if name != "n" || came != "held" || err != nil {
		t.Errorf("attacked() = %q, %q, %v", name, came, err)
	}
	_, came, _ = attacked([]byte(`{"name":"n","standing":"limited","detail":"timed_out after 1.400762792s, processes left and killed: 2"}`))
	if want := "limited timed_out, processes left and killed"; came != want {
		t.Errorf("attacked() = %q, want %q", came, want)
	}
	if _, came, err := graded([]byte(`{"id":"i","verdict":"verified","result":{"outcome":{"kind":"exited","exit_code":0},"stdout":{}}}`)); err == nil {
		t.Errorf("graded of a result without a hash = %q, want an error", came)
	}
	if _, came, _ = attacked([]byte(`{"name":"n","standing":"got through","detail":"stdout is \"have: 3\""}`)); came != `got through stdout is "have: 3"` {
		t.Errorf("attacked() = %q, want what was printed as it is", came)
	}
	if _, _, err := graded([]byte("{")); err == nil {
		t.Error("graded of half a line = nil, want an error")
	}
}

func TestReasons(t *testing.T) {
	reasons, err := readReasons(explained)
	if err != nil {
		t.Errorf("explained.tsv: %v", err)
	}
	page, err := os.ReadFile("../../docs/backends.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reasons {
		if !strings.Contains(string(page), strings.TrimPrefix(r.name, "attack ")) {
			t.Errorf("docs/backends.md does not explain %s", r.name)
		}
	}
	const head = "case\tbackends\tcomes to\twhy\n"
	if got, err := readReasons(head + "a\toci/runc,docker\tb\tc"); err != nil || len(got) != 1 || len(got[0].backends) != 2 {
		t.Errorf("readReasons of one reason for two backends = %v, %v", got, err)
	}
	for _, bad := range []string{"case\tbackend", head + "a\tdocker\tb", head + "a\tdocker\t\tc", head + "a\tdokcer\tb\tc", head + "a\tnative\tb\tc"} {
		if got, err := readReasons(bad); err == nil {
			t.Errorf("readReasons(%q) = %v, want an error", bad, got)
		}
	}
}
