"""Query towers: small encoders of queries, made to give the token vectors of a whole model.

A recipe with a ``[tower]`` table trains one (`weft train`): texts without judgements (`texts`), the model's own vectors
for them (`teacher`), a student (`students`), and the files beside the model's (`writing`).
"""
