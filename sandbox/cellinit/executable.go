//go:build linux

package cellinit

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"
)

const (
	auxEntry  = 9        // AT_ENTRY of getauxval(3): where this program begins in memory
	pageBytes = 64 << 10 // the largest page of any machine that we run on
)

// Executable returns the program that a container executes as its init: an ELF
// file that holds the machine code and the constants of this program, and begins in
// enterContained. So it has neither a runtime that starts nor data that it could
// change, and is the same in every container. It needs no loader and no library.
func Executable() ([]byte, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("make the init of containers: %w", err)
	}
	defer self.Close() // only read from
	f, err := elf.NewFile(self)
	if err != nil {
		return nil, fmt.Errorf("make the init of containers: read /proc/self/exe: %w", err)
	}
	loaded, err := loadedAt()
	if err != nil {
		return nil, fmt.Errorf("make the init of containers: %w", err)
	}
	entry := uint64(containedPC) - (loaded - f.Entry) // where it is in the file's own addresses
	var kept []*elf.Prog
	begins := false
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_W == 0 {
			kept = append(kept, p)
			begins = begins || p.Flags&elf.PF_X != 0 && p.Vaddr <= entry && entry < p.Vaddr+p.Filesz
		}
	}
	if !begins {
		return nil, errors.New("make the init of containers: /proc/self/exe has no code that begins it")
	}
	b, err := executable(f.Machine, entry, kept)
	if err != nil {
		return nil, fmt.Errorf("make the init of containers: %w", err)
	}
	return b, nil
}

// loadedAt is the address of this program's entry point in our memory.
func loadedAt() (uint64, error) {
	aux, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return 0, err
	}
	const word = unsafe.Sizeof(uintptr(0))
	for pair := range slices.Chunk(aux, 2*int(word)) {
		if len(pair) == 2*int(word) && binary.NativeEndian.Uint64(pair) == auxEntry {
			return binary.NativeEndian.Uint64(pair[word:]), nil
		}
	}
	return 0, errors.New("/proc/self/auxv does not say where this program begins")
}

// executable is an ELF file of these segments, with a stack that is not executable.
func executable(machine elf.Machine, entry uint64, kept []*elf.Prog) ([]byte, error) {
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Entry: entry,
		Phoff: uint64(binary.Size(elf.Header64{})), Ehsize: uint16(binary.Size(elf.Header64{})),
		Phentsize: uint16(binary.Size(elf.Prog64{})), Phnum: uint16(len(kept) + 1), Shentsize: uint16(binary.Size(elf.Section64{})),
	}
	segments := []elf.Prog64{{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16}}
	var content []byte
	end := uint64(pageBytes) // behind the headers
	for _, p := range kept {
		start := end + p.Vaddr%pageBytes // as far into a page as in memory
		segments = append(segments, elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(p.Flags), Off: start, Vaddr: p.Vaddr, Paddr: p.Vaddr,
			Filesz: p.Filesz, Memsz: p.Filesz, Align: pageBytes,
		})
		content = append(content, make([]byte, start-pageBytes-uint64(len(content))+p.Filesz)...)
		if _, err := p.ReadAt(content[start-pageBytes:], 0); err != nil {
			return nil, fmt.Errorf("read /proc/self/exe: %w", err)
		}
		end = (start + p.Filesz + pageBytes - 1) / pageBytes * pageBytes
	}
	var b bytes.Buffer
	for _, part := range []any{header, segments} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	b.Write(make([]byte, pageBytes-b.Len()))
	b.Write(content)
	return b.Bytes(), nil
}
