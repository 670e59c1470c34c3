"""Files that others wrote, read without trust: nothing in them is executed, and none decides how much memory is taken.

files     ReadError, open_regular; write_whole, locks, checksums
text      JSON, lines, CSV rows; excerpt, printable and cell, for text that a message, a terminal or a spreadsheet shows
limits    how much memory a command may take, and what files may claim
csv_files read_csv, as Arrow tables; how a file is written
arrays    read_npy, NpzFile, read_table (of numbers)
processes processes of this machine and tasks on a Ray cluster, which end with the one that started them
worker    how such a process begins: what ends it comes before all else
console   what commands share: the console, errors in one sentence, a bar, Ctrl-C and SIGTERM
"""
