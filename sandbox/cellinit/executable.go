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
// file that holds the machine code of this program, and begins in enterContained.
// So it has neither a runtime that starts nor data that it could need, and is
// the same in every container. It needs no loader and no library.
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
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Vaddr <= entry && entry < p.Vaddr+p.Filesz {
			code := make([]byte, p.Filesz)
			if _, err := p.ReadAt(code, 0); err != nil {
				return nil, fmt.Errorf("make the init of containers: read /proc/self/exe: %w", err)
			}
			return executable(f.Machine, p.Vaddr, entry, code)
		}
	}
	return nil, errors.New("make the init of containers: /proc/self/exe has no code that begins it")
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

// executable is an ELF file with one segment of code, and a stack that is not
// executable.
func executable(machine elf.Machine, address, entry uint64, code []byte) ([]byte, error) {
	const headers = 2
	start := pageBytes + address%pageBytes // as far into a page as in memory
	var b bytes.Buffer
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Entry: entry,
		Phoff: uint64(binary.Size(elf.Header64{})), Ehsize: uint16(binary.Size(elf.Header64{})),
		Phentsize: uint16(binary.Size(elf.Prog64{})), Phnum: headers, Shentsize: uint16(binary.Size(elf.Section64{})),
	}
	segments := [headers]elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: start, Vaddr: address, Paddr: address,
			Filesz: uint64(len(code)), Memsz: uint64(len(code)), Align: pageBytes},
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	}
	if err := binary.Write(&b, binary.LittleEndian, header); err != nil {
		return nil, err
	}
	if err := binary.Write(&b, binary.LittleEndian, segments); err != nil {
		return nil, err
	}
	b.Write(make([]byte, start-uint64(b.Len())))
	b.Write(code)
	return b.Bytes(), nil
}
