#include "textflag.h"

// func framePointers(pcs *[9]uintptr, from unsafe.Pointer)
TEXT ·framePointers(SB), NOSPLIT|NOFRAME, $0-16
	MOVD pcs+0(FP), R0
	MOVD from+8(FP), R1
	CMP  $0, R1
	CSEL EQ, R29, R1, R1
	MOVD $9, R2
next:
	MOVD 8(R1), R3 // the return address lies above the caller's frame pointer
	MOVD R3, (R0)
	MOVD (R1), R3
	CMP  R1, R3 // outer frames lie higher; the outermost has zero
	BLS  done
	SUB  R1, R3, R4
	MOVD $0x4000000, R5
	CMP  R5, R4 // too far for a frame: C has called back, and the next frame pointer is its, or no pointer at all
	BHI  done
	MOVD R3, R1
	ADD  $8, R0
	SUB  $1, R2
	CBNZ R2, next
done:
	RET
