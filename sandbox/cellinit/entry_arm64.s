#include "textflag.h"

// enterContained is an entry point as the kernel calls it: the stack pointer is at
// the arguments, and there is no other state. Go's code has its goroutine in g,
// though what is called here makes no use of it.
TEXT ·enterContained(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVD	$0, g
	BL	·runContained(SB)
	BRK

DATA ·containedPC(SB)/8, $·enterContained(SB)
GLOBL ·containedPC(SB), RODATA, $8
