package grade

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// SharedIDs is how many ids Batch.Shared names at most.
const SharedIDs = 20

// Batch finds claims that say the same thing twice, and claims that lean on one
// check for different things. It is filled in a first pass over all claims with
// Add; in a second one, in the same order, Duplicate is told the verdicts.
// It keeps an id and two hashes of a claim, never its texts.
//
// A claim without a title or with a blank check is never flagged. The zero
// value is an empty batch. A Batch is not safe for concurrent use.
type Batch struct {
	groups map[digest]group
}

// digest is the first half of a SHA-256.
type digest [sha256.Size / 2]byte

// group is the claims that have one check and one expectation. Most have one
// member, so what only more of them need is kept apart.
type group struct {
	id    string // of the first member
	title digest // of the first member
	more  *members
}

type members struct {
	ids     []string // the first SharedIDs, in order
	count   int
	graded  int                 // how many verdicts are in
	verdict Verdict             // of the first member that was graded
	mixed   bool                // two members differ in title or verdict
	firsts  map[identity]string // id of the first member that has it
}

// identity is what, within a group, makes a claim a duplicate.
type identity struct {
	title   digest
	verdict Verdict
}

// Add counts a claim in.
func (b *Batch) Add(id, title string, ev Evidence) {
	key, titled, ok := keys(title, ev)
	if !ok {
		return
	}
	if b.groups == nil {
		b.groups = make(map[digest]group)
	}
	g, seen := b.groups[key]
	if !seen {
		b.groups[key] = group{id: id, title: titled}
		return
	}
	if g.more == nil {
		g.more = &members{ids: []string{g.id}, count: 1, firsts: make(map[identity]string)}
		b.groups[key] = g
	}
	m := g.more
	m.count++
	m.mixed = m.mixed || titled != g.title
	if len(m.ids) < SharedIDs {
		m.ids = append(m.ids, id)
	}
}

// Duplicate tells the batch the verdict of a claim that was added, once for
// each claim and in the order of Add. Where an earlier claim has the same
// check, expectation, title and verdict, it returns the id of the first such.
func (b *Batch) Duplicate(id, title string, ev Evidence, v Verdict) (of string, ok bool) {
	m, titled := b.find(title, ev)
	if m == nil {
		return "", false
	}
	if m.graded == 0 {
		m.verdict = v
	}
	m.graded++
	m.mixed = m.mixed || v != m.verdict
	is := identity{titled, v}
	if of, ok = m.firsts[is]; !ok {
		m.firsts[is] = id
	}
	return of, ok
}

// Shared names the claims that share check and expectation with this one though
// they are not all duplicates of one another: titles or verdicts differ. That
// is a defect of the check, and the group counts as one verification. ids are
// the first SharedIDs of the count members, this claim among them; nil and 0
// stand for no defect. Where the titles are all the same the answer waits for
// the verdicts: final is false as long as one that is still to come could
// change it.
func (b *Batch) Shared(title string, ev Evidence) (ids []string, count int, final bool) {
	m, _ := b.find(title, ev)
	switch {
	case m == nil:
		return nil, 0, true
	case m.mixed:
		return m.ids, m.count, true
	}
	return nil, 0, m.graded >= m.count
}

// find returns the claims that share check and expectation with one, nil if
// there is no other.
func (b *Batch) find(title string, ev Evidence) (m *members, titled digest) {
	key, titled, ok := keys(title, ev)
	if !ok {
		return nil, titled
	}
	return b.groups[key].more, titled
}

// keys returns the digests of check and expectation, and of the title; ok is
// false for a claim that is never flagged.
func keys(title string, ev Evidence) (group, titled digest, ok bool) {
	check, normal := Trim(decode(ev.Check)), normalTitle(title)
	if check == "" || normal == "" {
		return group, titled, false
	}
	return digestOf(check, Trim(decode(ev.Expect))), digestOf(normal), true
}

// digestOf hashes texts, each after its length so that none runs into the next.
func digestOf(texts ...string) (d digest) {
	h := sha256.New()
	for _, s := range texts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	copy(d[:], h.Sum(nil))
	return d
}

// normalTitle trims, makes one space of each run of blanks, lowers the case and
// then removes one ".md" at the end.
func normalTitle(title string) string {
	words := strings.FieldsFunc(decode(title), blank)
	return strings.TrimSuffix(lower(strings.Join(words, " ")), ".md")
}

// SharedTotals counts, once all verdicts are known, the claims that share a
// check with another one and the checks that they share. Each such check
// counts as one verification, however many claims lean on it.
func (b *Batch) SharedTotals() (claims, checks int) {
	for _, g := range b.groups {
		if g.more != nil && g.more.mixed {
			claims += g.more.count
			checks++
		}
	}
	return claims, checks
}
