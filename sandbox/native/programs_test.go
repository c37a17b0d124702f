package native_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// copyPrograms copies programs and the shared libraries that they name to the
// same places below root.
func copyPrograms(root string, programs ...string) error {
	files := map[string]bool{}
	for _, program := range programs {
		files[program] = true
		out, err := exec.Command("ldd", program).Output()
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			files[m[1]] = true
		}
	}
	for name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		if err != nil {
			return err
		}
		to := filepath.Join(root, dir)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), content, 0o755); err != nil {
			return err
		}
	}
	return nil
}
