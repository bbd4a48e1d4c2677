// The FM-index for machines that count bits in one instruction: the same code, compiled for them.
#define WEFT_FM_FOR_POPCNT
#include "corpus_index_fm.cpp"
