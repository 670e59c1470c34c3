"""Files that others wrote, read without trust: nothing in them is executed, and none says how much memory to take.

opening   ReadError, only regular files, what a header promises against what is there, what may be unpacked
arrays    read_npy, NpzFile
zips      the members of a zip file, within the limit
pickles   the few opcodes that NumPy's arrays, torch's tensors, numbers, text, lists and dictionaries need
tensors   read_torch: what torch.save wrote, zip file or not
text      read_json, parse_json, read_table (of numbers), all_lines, text_lines, csv_rows
"""

from noiseproof.reading.arrays import NpzFile, read_npy
from noiseproof.reading.opening import ReadError, check_promise, check_unpacked, fill, open_regular, shown
from noiseproof.reading.pickles import read_pickle
from noiseproof.reading.tensors import read_torch
from noiseproof.reading.text import all_lines, csv_rows, parse_json, read_json, read_table, text_lines

__all__ = ["NpzFile", "ReadError", "all_lines", "check_promise", "check_unpacked", "csv_rows", "fill", "open_regular"]
__all__ += ["parse_json", "read_json", "read_npy", "read_pickle", "read_table", "read_torch", "shown", "text_lines"]
